"""``sim``, as a person runs it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from everstep.cli.app import app
from everstep.monitor.detectors import sight
from everstep.sim import many

RUNNER = CliRunner()


def test_seeds_run_in_processes_of_their_own_and_are_counted():
    """Each ends well, and the exit code says so."""
    done = RUNNER.invoke(app, ["sim", "run", "--seeds", "4", "--processes", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"seeds": 4, "failed": []}


def test_seeds_run_for_a_while_when_a_time_is_given():
    """At least the ones that were begun before it was over."""
    done = RUNNER.invoke(app, ["sim", "run", "--seconds", "0.1", "--start", "7"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip().endswith("seeds, 0 failed")


def test_failing_seed_is_told_with_the_command_that_replays_it(monkeypatch):
    """And the exit code is 1."""
    bad = many.SeedResult(seed=9, wrong=("h1 is lost",), faults=("save",), virtual_s=1.0, digest="")
    monkeypatch.setattr(many, "run_many", lambda **_: iter([bad]))
    done = RUNNER.invoke(app, ["sim", "run"])
    assert done.exit_code == 1
    assert "seed 9 fails (save):" in done.stdout
    assert "replay: everstep sim replay 9" in done.stdout


def test_replay_writes_the_trace_and_says_the_same_every_time(tmp_path):
    """The digest is the run's."""
    path = tmp_path / "trace.txt"
    first = RUNNER.invoke(app, ["sim", "replay", "3", "--trace", str(path), "--json"])
    again = RUNNER.invoke(app, ["sim", "replay", "3", "--json"])
    assert (first.exit_code, again.exit_code) == (0, 0)
    document = json.loads(first.stdout)
    assert document == json.loads(again.stdout)
    assert document["plan"]["seed"] == 3
    assert "power on" in path.read_text()


def test_story_that_fails_says_so(monkeypatch):
    """The exit code too."""
    good = RUNNER.invoke(app, ["sim", "story", "ends_wait_for_the_database"])
    assert good.exit_code == 0, good.output
    monkeypatch.setattr(sight, "RECORD_GRACE_MS", 0)
    bad = RUNNER.invoke(app, ["sim", "story", "ends_wait_for_the_database"])
    assert bad.exit_code == 1
    assert "failed" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sim", "story", "nope"], "there is no story 'nope': expected one of agent_killed"),
        (["sim", "shrink", "1"], "seed 1 does not fail: there is nothing to shrink"),
    ],
)
def test_what_is_not_there_is_said(arguments, sentence):
    """One clear sentence."""
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code != 0
    assert sentence in str(done.exception)
