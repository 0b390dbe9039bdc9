"""A host that holds wrong bits is found, replaced, and has left nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.lab import Lab

from everstep.faults.kinds import MARKS_VARIABLE, Part, as_environment, at

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

FLIP_AT = 11  # completed steps: the state of the next one is the first wrong one
RANK = 5
LAYOUT = {"pp": 1, "dp_replicate": 4, "dp_shard": 1, "tp": 2}


def test_flipped_bit_of_a_parameter_costs_its_host_the_seat(lab: Lab, tmp_path: Path):
    """The host stays out, one step is made again, and the end is that of the undisturbed run."""
    flip = at(rank=RANK, step=FLIP_AT).flip(Part.PARAMETER, tensor="layers.1.ffn.w2.weight")
    env = {**as_environment(flip), MARKS_VARIABLE: str(tmp_path / "struck")}
    job_id = lab.submit("flipped", layout=LAYOUT, env=env)
    job = lab.succeeded(job_id)
    (mark,) = (tmp_path / "struck" / job_id).glob("*.json")
    culprit = json.loads(mark.read_text())["host"]
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("silent_corruption", "REPLACE")
    assert (incident["ranks"], incident["hosts"]) == ([RANK], [culprit])
    assert (incident["step"], incident["suspect_from_step"]) == (FLIP_AT + 1, FLIP_AT + 1)
    assert incident["detail"].splitlines() == ["model.layers.1.ffn.w2.weight"]
    assert incident["recovered_at_ms"] is not None
    assert job["recoveries"][-1]["restore_step"] == FLIP_AT
    host = lab.hosts()[culprit]
    assert (host["state"], host["cordon_reason"]) == ("cordoned", "silent_corruption")
    assert culprit not in {one["host_id"] for one in lab.hosts_of(job_id)}

    same = lab.submit("sound", layout=LAYOUT)
    lab.succeeded(same)
    assert lab.incidents(same) == []
    compared, differences = lab.differences(job_id, same, tmp_path)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id) == lab.losses(same)
