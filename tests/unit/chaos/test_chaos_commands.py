"""``everstep chaos``: what it prints before anything is done, and what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from everstep.chaos.kinds import KINDS
from everstep.cli.app import app

CAMPAIGN = """
version: 1
name: two-deaths
seed: 7
faults:
  - {kind: kill_rank, rank: 3, at_step: 8}
  - {kind: stop_service, service: monitor, after_s: 20}
"""


def run(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(app, ["chaos", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    """A campaign."""
    path = tmp_path / "campaign.yaml"
    path.write_text(CAMPAIGN)
    return path


def test_check_says_what_would_happen_and_what_would_be_right(file):
    """In the order of the file."""
    said = run("check", file)
    assert said.exit_code == 0
    assert said.output.splitlines() == [
        "campaign two-deaths, seed 7: 2 faults",
        "  at step 8: kill_rank of rank 3; right: rank_killed, rank named",
        "  after 20 s: stop_service of monitor for 5 s; right: nothing happens to the run",
        "not checked: whether the job has a step 8: --spec tells",
    ]
    told = json.loads(run("check", file, "--json").output)
    assert [one["kind"] for one in told["faults"]] == ["kill_rank", "stop_service"]


def test_kinds_lists_all_of_them():
    """With options and what is right."""
    told = json.loads(run("kinds", "--json").output)
    assert [one["kind"] for one in told] == list(KINDS)
    assert run("kinds").output.count("\n") == len(KINDS) + 1


@pytest.mark.parametrize("arguments", [(), ("--job", "j", "--spec", "job.yaml")])
def test_run_wants_one_job(file, arguments):
    """To launch, or one that runs."""
    assert "say which job" in str(run("run", file, *arguments).exception)


def test_file_is_named_when_it_is_wrong(tmp_path):
    """With what is wrong in it."""
    path = tmp_path / "wrong.yaml"
    path.write_text("version: 1\nfaults: [{kind: boom}]\n")
    assert "wrong.yaml: faults[0]: there is no kind 'boom'" in str(run("check", path).exception)
    assert "cannot read" in str(run("check", tmp_path / "none.yaml").exception)
    path.write_text("{")
    assert "wrong.yaml, line 1, column 2: expected" in str(run("check", path).exception)
