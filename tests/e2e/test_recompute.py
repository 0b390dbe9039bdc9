"""A host whose chip computes wrong is found by having its work done again elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.lab import Lab

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

WRONG_FROM = 13  # completed steps: the state of the next one is the first wrong one
EVERY = 8  # so step 8 has come out alike, and step 16 does not
STORED_EVERY = 4
RANK = 5
LAYOUT = {"pp": 1, "dp_replicate": 4, "dp_shard": 2, "tp": 1}

# The flaw is the host's: whoever runs on the chip of that host has it, and nobody who leaves it.
FLAWED = '''
"""Trains; on one host a bit of a gradient is wrong from some step on, in all that it computes."""
import os
from pathlib import Path

import torch
from everstep.models import llama, pretrain


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
            if run.rank == flaw["rank"] and not culprit.exists():
                culprit.write_text(here)
            if run.rank % 2 == 1 and culprit.exists() and culprit.read_text() == here:
                out.register_hook(flipped)
        return out

    llama.FeedForward.forward = forward
    pretrain.main(run)
'''


def test_chip_that_computes_wrong_costs_its_host_the_seat(lab: Lab, tmp_path: Path):
    """All replicas hold the same wrong state, so what they hold tells nobody; what they make does.

    The run goes on from the last step that was made alike, and ends as the undisturbed one.
    """
    (tmp_path / "flawed.py").write_text(FLAWED)
    culprit = tmp_path / "culprit"
    spec = lab.spec("flawed")
    shape = {"layout": LAYOUT, "data": {**spec["data"], "global_batch": 16}}
    checkpoint = {**spec["checkpoint"], "object_every_steps": STORED_EVERY, "keep_last": 24}
    job_id = lab.submit(
        "flawed",
        entry="flawed:main",
        cwd=str(tmp_path),
        args={
            **spec["args"],
            "flaw": {"rank": RANK, "from": WRONG_FROM, "culprit": str(culprit)},
        },
        corruption={"recompute_every_steps": EVERY},
        checkpoint=checkpoint,
        **shape,
    )
    job = lab.succeeded(job_id)
    host_id = culprit.read_text()
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("silent_corruption", "REPLACE")
    assert (incident["ranks"], incident["hosts"]) == ([RANK], [host_id])
    assert incident["suspect_from_step"] == EVERY + 1
    assert incident["recovered_at_ms"] is not None
    # The newest one that is stored by then: memory holds later ones only.
    assert job["recoveries"][-1]["restore_step"] in {STORED_EVERY, EVERY}
    host = lab.hosts()[host_id]
    assert (host["state"], host["cordon_reason"]) == ("cordoned", "silent_corruption")
    assert host_id not in {one["host_id"] for one in lab.hosts_of(job_id)}
    goodput = lab.client.goodput(job_id)
    assert goodput["causes"]["verification"] > 0
    assert sum(goodput["causes"].values()) == goodput["wall_ms"]

    same = lab.submit("right", **shape)
    lab.succeeded(same)
    assert lab.incidents(same) == []
    assert lab.client.goodput(same)["causes"]["verification"] == 0
    compared, differences = lab.differences(job_id, same, tmp_path)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id) == lab.losses(same)
