"""``sim``, as a person runs it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial

import pytest
from typer.testing import CliRunner

from everstep.cli import fleet_command, late
from everstep.cli.app import app
from everstep.core.errors import InvalidInput
from everstep.fleet import many as fleet_many
from everstep.fleet.scenario import FOLDER, load, named
from everstep.monitor.detectors import sight
from everstep.sim import many, playing, swarm

RUNNER = CliRunner()


def test_seeds_run_in_processes_of_their_own_and_are_counted():
    """Each ends well, and the exit code says so."""
    done = RUNNER.invoke(app, ["sim", "run", "--seeds", "4", "--processes", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"seeds": 4, "failed": [], "interrupted": False}


def test_seeds_run_for_a_while_when_a_time_is_given():
    """At least the ones that were begun before it was over."""
    done = RUNNER.invoke(app, ["sim", "run", "--seconds", "0.1", "--start", "7"])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip().endswith("seeds, 0 failed")


def test_seeds_that_are_interrupted_are_counted():
    """And nothing goes on behind: neither in the middle of a world nor with what waited."""
    command = [sys.executable, "-m", "everstep.cli", "sim", "run", "--seeds", "500", "--start", "3"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command,
        start_new_session=True,
        # Who runs in the background ignores it, and so do its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread here
        **pipes,
    ) as process:
        assert process.stderr.readline().startswith("running seeds")
        os.killpg(process.pid, signal.SIGINT)
        told, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert told.endswith(" seeds, 0 failed, interrupted\n")
    with pytest.raises(ProcessLookupError):  # of the whole session nobody is left
        os.killpg(process.pid, 0)


def test_seeds_that_wait_when_the_time_is_over_are_not_run():
    """But the first one, so that something is known."""
    told = [many.one_seed(seed, until_s=0.0) for seed in (1, 2)]
    assert told == [None, None]
    assert [one.seed for one in many.run_many(start=5, seconds=0.0, processes=1)] == [5]


def test_failing_seed_is_told_with_the_command_that_replays_it(monkeypatch):
    """And the exit code is 1."""
    bad = many.SeedResult(seed=9, wrong=("h1 is lost",), faults=("save",), virtual_s=1.0, digest="")
    monkeypatch.setattr(many, "run_many", lambda **_: (one for one in [bad]))
    done = RUNNER.invoke(app, ["sim", "run"])
    assert done.exit_code == 1
    assert "seed 9 fails (save):" in done.stdout
    assert "replay: everstep sim replay 9" in done.stdout
    monkeypatch.setattr(many, "run_many", lambda **_: (one for one in [bad]))
    document = json.loads(RUNNER.invoke(app, ["sim", "run", "--json"]).stdout)
    assert document["failed"][0]["replay"] == "everstep sim replay 9"


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


def test_story_that_fails_says_so(monkeypatch, tmp_path):
    """The exit code too."""
    good = RUNNER.invoke(app, ["sim", "story", "ends_wait_for_the_database"])
    assert good.exit_code == 0, good.output
    monkeypatch.setattr(sight, "RECORD_GRACE_MS", 0)
    trace = tmp_path / "trace.txt"
    arguments = ["sim", "story", "ends_wait_for_the_database", "--trace", str(trace)]
    bad = RUNNER.invoke(app, arguments)
    assert bad.exit_code == 1
    assert "power on" in trace.read_text()  # which is what somebody will want to look at
    assert "failed" in bad.stdout
    assert "assert " in bad.stdout  # the line, as a bare assert has no words


@pytest.mark.parametrize("arguments", ["story --trace t.txt", "replay 3 --trace none/t.txt"])
def test_trace_that_cannot_be_written_is_refused_before_anything_runs(
    arguments, monkeypatch, tmp_path
):
    """Minutes later would be too late; and of many stories it would be the last one's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(swarm, "run_seed", None)
    monkeypatch.setattr(playing, "play", None)
    done = RUNNER.invoke(app, ["sim", *arguments.split()])
    assert isinstance(done.exception, (InvalidInput, OSError)), done.output
    assert list(tmp_path.iterdir()) == []


def test_fleet_is_simulated_over_scenarios_and_seeds_in_processes():
    """One outcome each, in the order asked for, whatever process it came from."""
    arguments = ["small", "slow-detection", "--seeds", "2", "--seed", "3", "--days", "0.02"]
    done = RUNNER.invoke(app, ["sim", "fleet", *arguments, "--processes", "2", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["failed"] == []
    assert [(one["scenario"], one["seed"]) for one in document["outcomes"]] == [
        ("small", 3), ("small", 4), ("slow-detection", 3), ("slow-detection", 4),
    ]  # fmt: skip
    alone = RUNNER.invoke(app, ["sim", "fleet", "small", "--seed", "4", "--days", "0.02", "--json"])
    assert json.loads(alone.stdout)["outcomes"] == [document["outcomes"][1]]


def test_fleet_report_says_where_the_time_went():
    """A line for the run, its goodput, and each cause that took any."""
    done = RUNNER.invoke(app, ["sim", "fleet", "small", "--days", "2"])
    assert done.exit_code == 0, done.output
    assert "small: 2 days of 16 hosts and 6 spares, seed 1" in done.stdout
    for line in ("goodput", "lost_work", "restart", "lost steps"):
        assert line in done.stdout


def test_fleet_seed_that_fails_is_told_with_the_command_that_replays_it(tmp_path):
    """No restart is allowed; the other scenario's report is still printed, the exit code is 1."""
    path = tmp_path / "my strict.toml"
    small = (FOLDER / "small.toml").read_text()
    path.write_text(small.replace("[job]", "[job]\nrestarts_per_hour_max = 0"))
    arguments = ["sim", "fleet", str(path), "small", "--seed", "4", "--days", "1"]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 1
    assert f"{path}: seed 4 fails:\n  the job failed: restart_budget" in done.stdout
    assert f"replay: everstep sim fleet '{path}' --seed 4 --days 1 --trace trace.txt" in done.stdout
    assert "small: 1 days" in done.stdout
    document = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)
    assert [one["seed"] for one in document["failed"]] == [4]
    assert [one["scenario"] for one in document["outcomes"]] == ["small"]


def test_fleet_replay_command_that_is_told_works(tmp_path, monkeypatch):
    """Its words are this command's own, and the trace is where it says."""
    monkeypatch.chdir(tmp_path)
    scenario = load("small")
    run = fleet_many.SeedRun(named="small", scenario=scenario, seed=4, days=0.5)
    bad = fleet_many.SeedResult(run=run, failure="a host has two seats")
    with monkeypatch.context() as patched:
        patched.setattr(fleet_many, "run_many", lambda *_, **__: iter([bad]))
        arguments = ["sim", "fleet", "small", "--seed", "4", "--days", "0.5"]
        told = RUNNER.invoke(app, arguments).stdout
    words = shlex.split(told.partition("replay: everstep ")[2].splitlines()[0])
    assert RUNNER.invoke(app, words).exit_code == 0
    assert "HostJoined" in (tmp_path / "trace.txt").read_text()


def test_fleet_tells_how_far_it_is(monkeypatch):
    """On standard error, so that the outcome can be read by a program."""
    monkeypatch.setattr(late, "QUIET_S", 0.0)
    done = RUNNER.invoke(app, ["sim", "fleet", "small", "--days", "2", "--json"])
    assert "of 2 days, about " in done.stderr
    assert json.loads(done.stdout)["failed"] == []


def test_fleet_says_how_much_is_left_once_something_is_done():
    """A quarter is done in 10 s: three more of these are left."""
    assert fleet_command.how_far(16.0, 64.0, 10.0) == "16 of 64 days, about 30.0 s left"
    assert fleet_command.how_far(0.0, 64.0, 10.0) == ""


def test_fleet_scenarios_are_listed_with_what_they_are_about():
    """All of them, for people and for programs."""
    names = {one.name for one in named()}
    listed = json.loads(RUNNER.invoke(app, ["sim", "fleet", "--list", "--json"]).stdout)
    assert {one["name"] for one in listed} == names
    shown = RUNNER.invoke(app, ["sim", "fleet", "--list"]).stdout
    assert all(one["name"] in shown and one["about"] in shown for one in listed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sim", "fleet", "llama4"], "there is no scenario 'llama4'"),
        (["sim", "fleet", "--days", "0"], "--days 0: expected 0.001 to 3,650"),
        (["sim", "fleet", "-n", "2", "--trace", "t"], "--trace is of one seed of one scenario"),
        (["sim", "story", "nope"], "there is no story 'nope': expected one of activation_"),
        (["sim", "shrink", "1"], "seed 1 does not fail: there is nothing to shrink"),
    ],
)
def test_what_is_not_there_is_said(arguments, sentence):
    """One clear sentence."""
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code != 0
    assert sentence in str(done.exception)
