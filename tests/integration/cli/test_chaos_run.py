"""``everstep chaos run`` and ``check``: what is found out before a job is launched, and after."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.command import everstep
from tests.integration.cli.conftest import stack_of

from everstep.core.spec import parse_spec
from everstep.faults.kinds import Part, at
from everstep.local.processes import record_of
from everstep.local.state import STATE_VARIABLE, HostConfig, StatePaths, save_stack

SPEC = {"name": "x", "entry": "train.py", "layout": {"dp_shard": 4}, "steps": 20, "seed": 3}
KILL = {"kind": "kill", "rank": 1, "at_step": 5}
JOB = {"job_id": "x-1", "phase": "succeeded", "detail": "", "step": 20, "spec": SPEC}
LEDGER = {"wall_ms": 10, "causes": {"useful": 10}}


@pytest.fixture
def paths(local, tmp_path) -> StatePaths:
    """A stack of two hosts that takes faults; its controller launches a job that has succeeded."""
    paths = StatePaths(root=Path(os.environ[STATE_VARIABLE]))
    hosts = tuple(HostConfig(host_id=name, chips=2, pod="a", power="a") for name in ("h1", "h2"))
    stack = stack_of(record_of("supervisor", os.getpid()), port=local.port)
    save_stack(paths, replace(stack, chaos=True, hosts=hosts))
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**SPEC, "cwd": str(tmp_path)}))
    local.on("POST", "/v1/jobs", {"job_id": "x-1"}, 201)
    local.on("GET", "/v1/jobs/x-1", JOB)
    local.on("GET", "/v1/jobs/x-1/metrics", {"points": []})
    local.on("GET", "/v1/jobs/x-1/refused-sources", {"refused_sources": []})
    local.on("GET", "/v1/jobs/x-1/goodput", LEDGER)
    local.on("GET", "/v1/incidents", {"incidents": []})
    return paths


def run(tmp_path, *arguments, faults=(KILL,)):
    """Run a campaign of these faults on the job."""
    file = tmp_path / "campaign.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "faults": list(faults)}))
    return everstep("chaos", "run", str(file), "--spec", str(tmp_path / "job.yaml"), *arguments)


def against(local, **changes):
    """Let there be a job to compare with."""
    spec = parse_spec({**SPEC, **changes.pop("spec", {})}).model_dump(mode="json")
    local.on("GET", "/v1/jobs/r-1", {**JOB, "job_id": "r-1", "spec": spec, **changes})
    kept = changes.get("kept", [{"step": 20, "complete": True}])
    local.on("GET", "/v1/checkpoints", {"checkpoints": kept})


@pytest.mark.parametrize(
    ("told", "changes", "why"),
    [
        (["--against", "r-2"], {}, "there is no job 'r-2'; `everstep jobs` lists them"),
        (["--against", "r-1"], {"phase": "failed"}, "it is failed, and only a job that has suc"),
        (["--against", "r-1"], {"spec": {"seed": 4}}, "its spec differs in seed"),
        (["--against", "r-1"], {"kept": []}, "the checkpoint of its last step is not kept"),
        (["--against", "r-1", "--reference"], {}, "say one"),
        (["--out", "/nosuch/dir/x.json"], {}, "there is no directory /nosuch/dir"),
        (["--out", "/"], {}, "expected a file, found a directory"),
    ],
)
def test_what_would_waste_the_run_is_refused_before_it(paths, local, tmp_path, told, changes, why):
    """Nothing is launched."""
    against(local, **changes)
    local.refuse("GET", "/v1/jobs/r-2", 404, "there is no job 'r-2'; `everstep jobs` lists them")
    done = run(tmp_path, *told)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert why in done.stderr
    assert [one for one in local.asked if one[0] == "POST"] == []


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"kind": "kill_host", "host": "h99", "at_step": 5}, "no host 'h99': the stack has h1, h2"),
        ({**KILL, "at_step": 20}, "at_step 20 is behind the job's end: it has 20 steps"),
        ({"kind": "loss_spike", "at_step": 9}, "--reference: batches will be left out, and the"),
    ],
)
def test_campaign_that_cannot_happen_is_refused_before_the_run(paths, local, tmp_path, fault, why):
    """Nothing is launched."""
    done = run(tmp_path, "--reference", faults=(fault,))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert why in done.stderr
    assert [one for one in local.asked if one[0] == "POST"] == []


def test_check_knows_the_hosts_of_the_stack_and_what_a_random_one_becomes(paths, tmp_path):
    """Four ranks on hosts of two chips."""
    file = tmp_path / "campaign.yaml"
    fault = {"kind": "partition_host", "host": "random", "at_step": 5}
    file.write_text(yaml.safe_dump({"version": 1, "faults": [fault]}))
    told = ("--spec", str(tmp_path / "job.yaml"))
    said = everstep("chaos", "check", str(file), *told).stdout
    assert " of the job's 2, in the order of their names for 30 s;" in said
    assert "not checked" not in said
    file.write_text(yaml.safe_dump({"version": 1, "faults": [{**fault, "host": "h9"}]}))
    assert "there is no host 'h9'" in everstep("chaos", "check", str(file)).stderr


def test_verdict_is_printed_even_if_the_report_cannot_be_written(paths, local, tmp_path):
    """The directory was there before the run."""
    directory = tmp_path / "out"
    directory.mkdir()

    def ended(_):
        shutil.rmtree(directory, ignore_errors=True)
        return JOB

    local.on("GET", "/v1/jobs/x-1", ended)
    done = run(tmp_path, "--out", str(directory / "report.json"))
    assert done.returncode == 1
    assert "WRONG  at step 5: kill of rank 1: did not strike: no rank came to it" in done.stdout
    assert "0 of 1 faults answered rightly: not all is right" in done.stdout
    assert "report.json: No such file or directory" in done.stderr


def test_reference_that_no_run_can_be_is_said_to_be_none(paths, local, tmp_path):
    """Before the run, and in the verdict; one job is launched."""
    fault = {"kind": "nan_gradient", "rank": 1, "at_step": 5}
    done = run(tmp_path, "--reference", faults=(fault,))
    why = "after nan_gradient no other run ends equal"
    assert f"no undisturbed run is made: {why}\n" in done.stderr
    assert f"end state: compared with nothing: {why}\n" in done.stdout
    assert len([one for one in local.asked if one[:2] == ("POST", "/v1/jobs")]) == 1


def test_campaign_that_a_rank_found_wrong_is_called_so_in_the_report(paths, local, tmp_path):
    """Not the user's code, and no other fault's verdict."""
    where = {"tensor": "nosuch", "element": -1, "bit": -1, "steps": 1}
    fault = at(rank=0, step=9).flip(Part.PARAMETER, **where)
    mark = {
        "fault": msgspec.to_builtins(fault),
        "rank": 0, "at_ms": 1, "host": "h1", "generation": 1, "wrong": "no parameter 'nosuch'",
    }  # fmt: skip

    def ended(_):
        marks = paths.root / "chaos" / "x-1"
        marks.mkdir(parents=True, exist_ok=True)
        (marks / "wrong-flip.json").write_text(json.dumps(mark))
        (marks / ".kill.json").write_text("{")  # another rank is writing it
        return JOB

    local.on("GET", "/v1/jobs/x-1", ended)
    flip = {"kind": "flip_parameter", "rank": 0, "at_step": 9, "tensor": "nosuch"}
    done = run(tmp_path, faults=(flip, KILL))
    flipped, killed = done.stdout.splitlines()[:2]
    assert flipped.endswith("did not strike: the campaign is wrong: no parameter 'nosuch'")
    assert killed.endswith("did not strike: no rank came to it")


@pytest.mark.parametrize("phase", ["launching", "running"])
def test_time_that_is_up_ends_the_run_and_stops_its_job(paths, local, tmp_path, phase):
    """With a code of its own."""
    local.on("GET", "/v1/jobs/x-1", {**JOB, "phase": phase, "step": 2})
    local.on("POST", "/v1/jobs/x-1/stop", {"phase": "stopping"}, 202)
    done = run(tmp_path, "--timeout", "1")
    assert done.returncode == 124
    assert (
        f"error: given up after 1 s (--timeout): job x-1 is {phase}, at no step yet; it is stopped"
    ) in done.stderr
    assert ("POST", "/v1/jobs/x-1/stop", {}) in local.asked


def test_time_that_is_up_in_the_undisturbed_run_ends_it_too(paths, local, tmp_path):
    """It is the first of two."""
    local.on("GET", "/v1/jobs/x-1", {**JOB, "phase": "waiting_for_hosts"})
    local.on("POST", "/v1/jobs/x-1/stop", {"phase": "stopping"}, 202)
    done = run(tmp_path, "--timeout", "1", "--reference")
    assert done.returncode == 124
    assert "the undisturbed job x-1 is waiting_for_hosts; it is stopped" in done.stderr


def test_time_that_is_up_in_the_comparison_still_gives_the_verdict(paths, local, tmp_path):
    """Nothing was compared, and why; the exit code says that it was the time."""
    against(local)
    asked = []

    def kept(_):
        asked.append(1)  # the first look, before the launch, finds it
        return {"checkpoints": [{"step": 20, "complete": True}] if len(asked) == 1 else []}

    local.on("GET", "/v1/checkpoints", kept)
    done = run(tmp_path, "--timeout", "2", "--against", "r-1")
    assert done.returncode == 124
    assert "end state: compared with nothing: given up after 2 s (--timeout)" in done.stdout
    assert "0 of 1 faults answered rightly: not all is right" in done.stdout


def test_store_that_is_away_in_the_comparison_leaves_the_verdict(paths, local, tmp_path):
    """What was found out of the faults is not lost with it, in the file neither."""
    against(local, kept=[{"job_id": "r-1", "step": 20, "complete": True, "manifest_uri": "a/b/m"}])
    out = tmp_path / "report.json"
    done = run(tmp_path, "--against", "r-1", "--out", str(out))
    assert done.returncode == 1
    assert "0 of 1 faults answered rightly: not all is right" in done.stdout
    state = json.loads(out.read_text())["state"]
    assert state["equal"] is None
    assert "'a/b/' in bucket 'everstep'" in state["why_not_compared"]
    assert f"end state: compared with nothing: {state['why_not_compared']}" in done.stdout


def test_registry_that_refuses_the_comparison_leaves_the_verdict(paths, local, tmp_path):
    """It answered before the launch, and does not any more."""
    against(local)

    def kept(_):
        local.refuse("GET", "/v1/checkpoints", 409, "not now")
        return {"checkpoints": [{"step": 20, "complete": True}]}

    local.on("GET", "/v1/checkpoints", kept)
    done = run(tmp_path, "--against", "r-1")
    assert done.returncode == 1
    assert "end state: compared with nothing: not now" in done.stdout
    assert "0 of 1 faults answered rightly: not all is right" in done.stdout


def test_undisturbed_run_that_fails_behind_the_disturbed_one_leaves_the_verdict(
    paths, local, tmp_path
):
    """The run without the batches that were left out; it is the second one."""
    data = {"path": str(tmp_path), "sequence_tokens": 8, "global_batch": 8, "micro_batch": 2}
    told = {**SPEC, "cwd": str(tmp_path), "data": data}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(told))

    def launched(_):
        local.on("POST", "/v1/jobs", {"job_id": "r-1"}, 201)
        return {"job_id": "x-1"}

    local.on("POST", "/v1/jobs", launched, 201)
    local.on("GET", "/v1/jobs/r-1", {**JOB, "phase": "failed", "detail": "no room"})
    done = run(tmp_path, "--reference", faults=({"kind": "loss_spike", "at_step": 9},))
    assert done.returncode == 1
    why = "the undisturbed job r-1 failed: no room"
    assert f"end state: compared with nothing: {why}\n" in done.stdout
    assert "0 of 1 faults answered rightly: not all is right" in done.stdout


def test_undisturbed_run_of_a_long_name_has_one_that_a_job_may_have(paths, local, tmp_path):
    """Its end is what tells them apart."""
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({**SPEC, "name": "n" * 100, "cwd": str(tmp_path)})
    )
    run(tmp_path, "--timeout", "1", "--reference")
    launched = [one[2]["spec"]["name"] for one in local.asked if one[:2] == ("POST", "/v1/jobs")]
    first, second = launched
    assert (first, second) == (f"{'n' * 90}-reference", "n" * 100)
    assert parse_spec({**SPEC, "name": first}).name == first
