"""A run over NCCL survives the loss of a rank and of a host, bit for bit.

The same promises as on CPUs, kept by other code: contexts that a fork must not inherit, kernels
that add up in whatever order they like unless told not to, snapshots that leave the device, random
states of the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import OBJECT_EVERY, Lab

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(280)]

FAULT_STEP = OBJECT_EVERY + 3
JOB: dict[str, Any] = {
    "entry": "tests.gpu.on_nccl:main",
    "cwd": str(Path(__file__).parents[2]),
}


@pytest.fixture(scope="session")
def reference(stack: Lab) -> str:
    """The same job, undisturbed."""
    stack.heal()
    job_id = stack.submit("reference", **JOB)
    stack.succeeded(job_id)
    assert stack.incidents(job_id) == []
    return job_id


@pytest.fixture
def ends_equal(lab: Lab, reference: str, tmp_path: Path) -> Any:
    """Wait for a job's success and compare its final state with the undisturbed run's."""

    def check(job_id: str) -> dict[str, Any]:
        job = lab.succeeded(job_id)
        compared, differences = lab.differences(job_id, reference, tmp_path / "compare")
        assert differences == ()
        assert compared > 100
        assert lab.losses(job_id) == lab.losses(reference)
        newest: dict[str, Any] = job["recoveries"][-1]
        return newest

    return check


def test_undisturbed_run_repeats_itself(lab: Lab, ends_equal):
    """Without this nothing about recovery could be proved: two runs give the same bits."""
    ends_equal(lab.submit("again", **JOB))


def test_rank_killed_goes_on_from_own_memory(lab: Lab, ends_equal):
    """The fresh process opens the device anew and loses at most one step."""
    job_id = lab.submit("rank-killed", **JOB)
    lab.wait_step(job_id, FAULT_STEP)
    lab.kill_rank(5, job_id)
    recovery = ends_equal(job_id)
    assert recovery["sources"] == {"own_memory": 8, "peer_memory": 0, "object_store": 0}
    (incident,) = lab.incidents(job_id)
    assert incident["lost_steps"] <= 1


def test_host_killed_goes_on_from_the_peers_memory(lab: Lab, ends_equal):
    """What left the device for another host's memory comes back to a device equal."""
    job_id = lab.submit("host-killed", **JOB)
    lab.wait_step(job_id, FAULT_STEP)
    lab.kill_host(lab.hosts_of(job_id)[1]["host_id"])
    recovery = ends_equal(job_id)
    assert recovery["sources"]["peer_memory"] == 2
    (incident,) = lab.incidents(job_id)
    assert incident["lost_steps"] <= 1


def test_restart_from_a_stored_step_repeats_it(lab: Lab, ends_equal):
    """All ranks load from the object store and redo the same steps with the same bits."""
    job_id = lab.submit("restarted", **JOB)
    lab.wait_step(job_id, FAULT_STEP)
    lab.client.act(job_id, "restart", {"from_step": OBJECT_EVERY})
    recovery = ends_equal(job_id)
    assert recovery["restore_step"] == OBJECT_EVERY
