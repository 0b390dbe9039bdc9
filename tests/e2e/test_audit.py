"""Spare hosts do steps of a job again: whoever computes wrong is found, in the job or beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import Lab, wait_for

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

LAYOUT = {"pp": 2, "dp_replicate": 2, "tp": 2}  # a replica has two hosts, and so has the spare pool
RANK = 6  # of the second replica's last stage
WRONG_FROM = 13  # completed steps: the state of the next one is the first wrong one
STORED_EVERY = 4
STEPS = 30

# The flaw is a host's: its second chip has it in whatever it runs, and nobody who leaves it.
FLAWED = '''
"""Trains at its own pace; on one host a bit of a gradient is wrong from some step on."""
import os
from pathlib import Path

import torch
import unhurried
from everstep.models import llama


def flipped(tensor):
    wrong = tensor.clone()
    wrong.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 20)
    return wrong


def main(run):
    flaw = run.args.pop("flaw")
    culprit, right = Path(flaw["culprit"]), llama.FeedForward.forward
    here = os.environ["EVERSTEP_HOST_ID"]

    def forward(self, x):
        out = right(self, x)
        if run.step_index >= flaw["from"]:
            if run.spec.audit is None and run.rank == flaw["rank"] and not culprit.exists():
                culprit.write_text(here)
            if run.rank % 2 == 0 and culprit.exists() and culprit.read_text() == here:
                out.register_hook(flipped)
        return out

    llama.FeedForward.forward = forward
    unhurried.main(run)
'''


def submit(lab: Lab, culprit: Path, *, since: int) -> str:
    """Launch a job that is audited after every checkpoint, and hurries only when it is let go."""
    (lab.corpus.parent / "flawed_audit.py").write_text(FLAWED)
    spec = lab.spec("audited")
    flaw = {"rank": RANK, "from": since, "culprit": str(culprit)}
    job_id = lab.submit_unhurried(
        "audited",
        after=2,
        entry="flawed_audit:main",
        args={**spec["args"], "flaw": flaw},
        layout=LAYOUT,
        steps=STEPS,
        corruption={"audit_every_checkpoints": 1},
        checkpoint={**spec["checkpoint"], "object_every_steps": STORED_EVERY, "keep_last": 24},
    )
    lab.wait_step(job_id, 1)
    return job_id


def finding(lab: Lab, job_id: str, *which: str) -> dict[str, Any]:
    """Wait for the first audit that comes to one of these, and return it."""

    def look() -> dict[str, Any] | None:
        told = reversed(lab.client.audits(job_id))
        return next((one for one in told if one["finding"] in which), None)

    found: dict[str, Any] = wait_for(f"an audit that is {which}", look)
    return found


def test_host_that_computes_wrong_is_named_by_two_spares(lab: Lab, tmp_path: Path):
    """All ranks hold the same wrong state, and no other replica has made its work again.

    The run goes back to the last step of that replica that came out alike, and ends as the
    undisturbed one.
    """
    culprit = tmp_path / "culprit"
    job_id = submit(lab, culprit, since=WRONG_FROM)
    named = finding(lab, job_id, "named")
    lab.let_go("audited")
    job = lab.succeeded(job_id)
    host_id = culprit.read_text()
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("silent_corruption", "REPLACE")
    assert incident["hosts"] == [host_id]
    assert RANK in incident["ranks"]
    assert named["replica"] == 1
    told = lab.client.audits(job_id)
    assert {one["finding"] for one in told} == {"alike", "differs", "named"}
    alike = [one for one in told if one["finding"] == "alike" and one["step"] < named["step"]]
    assert {one["replica"] for one in alike} == {0, 1}
    assert job["recoveries"][-1]["restore_step"] <= WRONG_FROM
    host = lab.hosts()[host_id]
    assert (host["state"], host["cordon_reason"]) == ("cordoned", "silent_corruption")
    assert all(
        one["state"] == "spare" for name, one in lab.hosts().items() if name in named["hosts"]
    ) or set(named["hosts"]) & {one["host_id"] for one in lab.hosts_of(job_id)}

    same = lab.submit("right", layout=LAYOUT, steps=STEPS)
    lab.succeeded(same)
    compared, differences = lab.differences(job_id, same, tmp_path, steps=STEPS)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id, steps=STEPS) == lab.losses(same, steps=STEPS)


def test_spare_that_computes_wrong_is_found_before_a_job_gets_it(lab: Lab, tmp_path: Path):
    """The probes see nothing: only the job's own work does. The job trains on."""
    spares = sorted(name for name, one in lab.hosts().items() if one["state"] == "spare")
    culprit = tmp_path / "culprit"
    job_id = submit(lab, culprit, since=0)
    serving = {one["host_id"] for one in lab.hosts_of(job_id)}
    wrong = next(name for name in spares if name not in serving)
    finding(lab, job_id, "alike")  # the program repeats its bits: what differs from now on tells
    culprit.write_text(wrong)
    finding(lab, job_id, "spare_named")
    wait_for("the spare to be out", lambda: lab.hosts()[wrong]["state"] == "cordoned")
    assert lab.hosts()[wrong]["cordon_reason"] == "silent_corruption"
    lab.let_go("audited")
    job = lab.succeeded(job_id)
    listed = {one["job_id"] for one in lab.client.jobs()}
    assert {one["audit_job_id"] for one in lab.client.audits(job_id)} <= {
        one["job_id"] for one in lab.client.jobs(audits=True)
    } - listed
    assert job_id in listed
    assert lab.incidents(job_id) == []
    assert [one["cause"] for one in job["recoveries"]] == ["launch"]
