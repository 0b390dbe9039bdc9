"""A host that holds wrong bits is found, moved out of, and has left nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import Lab

from everstep.faults.kinds import MARKS_VARIABLE, Part, as_environment, at

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

FLIP_AT = 11  # completed steps: the state of the next one is the first wrong one
RANK = 5
# Of each weight there are two that must be alike, of a norm's four: tensor-parallel ranks have it
# as well.
LAYOUT = {"pp": 1, "dp_replicate": 2, "dp_shard": 2, "tp": 2}
FOUR_HOLD = "layers.1.ffn_norm.weight"
TWO_HOLD = "layers.1.ffn.w2.weight"


@pytest.fixture(scope="module")
def sound(stack: Lab) -> str:
    """The same job, undisturbed."""
    stack.heal()
    job_id = stack.submit("sound", layout=LAYOUT)
    stack.succeeded(job_id)
    assert stack.incidents(job_id) == []
    return job_id


def flipped(lab: Lab, directory: Path, tensor: str) -> tuple[str, str, dict[str, Any]]:
    """Run a job in which a bit of a rank's tensor flips; returns it, the host, and the job."""
    flip = at(rank=RANK, step=FLIP_AT).flip(Part.PARAMETER, tensor=tensor)
    env = {**as_environment(flip), MARKS_VARIABLE: str(directory / "struck")}
    job_id = lab.submit("flipped", layout=LAYOUT, env=env)
    job = lab.succeeded(job_id)
    (mark,) = (directory / "struck" / job_id).glob("*.json")
    return job_id, json.loads(mark.read_text())["host"], job


def assert_out_and_equal(lab: Lab, job_id: str, culprit: str, sound: str, directory: Path):
    """The host is kept out, for what it has done, and the run ends like the undisturbed one."""
    host = lab.hosts()[culprit]
    assert (host["state"], host["cordon_reason"]) == ("cordoned", "silent_corruption")
    assert culprit not in {one["host_id"] for one in lab.hosts_of(job_id)}
    compared, differences = lab.differences(job_id, sound, directory)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id) == lab.losses(sound)


def test_flipped_bit_of_a_parameter_costs_its_host_the_seat(lab: Lab, sound: str, tmp_path: Path):
    """Three others hold the same: the host is replaced, and one step is made again."""
    job_id, culprit, job = flipped(lab, tmp_path, FOUR_HOLD)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("silent_corruption", "REPLACE")
    assert (incident["ranks"], incident["hosts"]) == ([RANK], [culprit])
    assert (incident["step"], incident["suspect_from_step"]) == (FLIP_AT + 1, FLIP_AT + 1)
    assert incident["detail"].splitlines() == [f"model.{FOUR_HOLD}"]
    assert incident["recovered_at_ms"] is not None
    assert job["recoveries"][-1]["restore_step"] == FLIP_AT
    assert_out_and_equal(lab, job_id, culprit, sound, tmp_path)


def test_flipped_bit_on_one_of_two_is_told_by_the_step_made_again(
    lab: Lab, sound: str, tmp_path: Path
):
    """One of two was wrong. Nobody is evicted, until that step comes out as the other had it.

    Going back costs a step, moving off the host none.
    """
    job_id, culprit, job = flipped(lab, tmp_path, TWO_HOLD)
    first, second = sorted(lab.incidents(job_id), key=lambda one: one["detected_at_ms"])
    assert (first["kind"], first["action"]) == ("silent_corruption", "RESTART")
    assert culprit in first["hosts"]
    assert len(first["hosts"]) == 2
    assert first["detail"].splitlines() == [f"model.{TWO_HOLD}"]
    assert (second["kind"], second["action"]) == ("silent_corruption", "DRAIN")
    assert (second["ranks"], second["hosts"]) == ([RANK], [culprit])
    assert second["step"] == FLIP_AT + 1
    assert None not in {one["recovered_at_ms"] for one in (first, second)}
    back, move = job["recoveries"][-2:]
    assert back["restore_step"] == FLIP_AT
    assert move["restore_step"] >= FLIP_AT + 1
    assert_out_and_equal(lab, job_id, culprit, sound, tmp_path)
