"""A run that stands still or is slow is put right: the rank that it waits for is named, only it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import Lab, wait_for

from everstep.local import hosts, launch, processes
from everstep.train import faults

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

VICTIM = 5
SLOW = 2
SLOW_STEPS = 600  # of half a tenth of a second or more: a window takes 20 s
PAUSE_S = 20.0  # longer than any limit on silence


@pytest.fixture
def ends_equal(lab: Lab, reference: str, tmp_path: Path) -> Any:
    """Wait for a job's success and compare its final state with the undisturbed run's."""

    def check(job_id: str) -> dict[str, Any]:
        job = lab.succeeded(job_id)
        assert lab.differences(job_id, reference, tmp_path / "compare")[1] == ()
        return job

    return check


def pid_of(lab: Lab, job_id: str, rank: int) -> int:
    """The process of a rank, as its host knows it."""
    for host in launch.require_stack(lab.paths).hosts:
        for found in hosts.ranks(lab.paths, host.host_id):
            if (found.rank, found.job_id) == (rank, job_id):
                return int(found.record.pid)
    raise AssertionError(f"rank {rank} of {job_id} runs nowhere")


def test_rank_that_is_stopped_is_found_and_started_again(lab: Lab, ends_equal):
    """SIGSTOP: nothing ends and nothing fails, the others just wait; one rank is blamed."""
    job_id = lab.submit("stopped")
    lab.wait_step(job_id, 5)
    os.kill(pid_of(lab, job_id, VICTIM), signal.SIGSTOP)
    (incident,) = wait_for("an incident", lambda: lab.incidents(job_id))
    assert (incident["kind"], incident["ranks"]) == ("rank_stopped", [VICTIM])
    placed = {rank: host["host_id"] for host in lab.hosts_of(job_id) for rank in host["ranks"]}
    assert incident["hosts"] == [placed[VICTIM]]
    assert f"rank {VICTIM} stopped by a signal (process state T)" in incident["reason"]
    job = ends_equal(job_id)
    assert [one["cause"] for one in job["recoveries"]] == ["launch", "recovery"]
    assert "cordoned" not in {host["state"] for host in lab.hosts().values()}


def test_slow_rank_is_moved_off_its_host_without_losing_a_step(lab: Lab):
    """Half as slow again on one host, and not on the spare that takes over."""
    first = lab.submit("fast", steps=1)
    lab.succeeded(first)
    placed = {rank: host["host_id"] for host in lab.hosts_of(first) for rank in host["ranks"]}
    slow = faults.at(rank=SLOW, step=10, host=placed[SLOW]).slow(percent=50)
    job_id = lab.submit("slow", steps=SLOW_STEPS, env=faults.as_environment(slow))
    lab.wait_step(job_id, 1)
    wait_for("an incident", lambda: lab.incidents(job_id), patience_s=400)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("straggler", "DRAIN")
    assert (incident["ranks"], incident["hosts"]) == ([SLOW], [placed[SLOW]])
    wait_for("the move", lambda: lab.client.job(job_id)["generation"] == 2)
    lab.wait_phase(job_id, "running", "succeeded")
    assert placed[SLOW] not in {host["host_id"] for host in lab.hosts_of(job_id)}
    assert lab.hosts()[placed[SLOW]]["cordon_reason"] == "straggler"
    assert not any(point["redone"] for point in lab.client.metrics(job_id))
    lab.client.act(job_id, "stop")


def test_pause_of_the_whole_machine_condemns_nobody(lab: Lab, ends_equal):
    """As when a laptop sleeps: everything stops and goes on, and nobody was away."""
    job_id = lab.submit("asleep")
    lab.wait_step(job_id, 5)
    everything = processes.marked(lab.stack.stack_id)
    assert len(everything) > 20  # servers, services, agents, fork servers, ranks
    processes.send_signal(everything, signal.SIGSTOP)
    time.sleep(PAUSE_S)  # this is the pause
    processes.send_signal(everything, signal.SIGCONT)
    job = ends_equal(job_id)
    assert lab.incidents(job_id) == []
    assert [one["cause"] for one in job["recoveries"]] == ["launch"]
    assert {host["state"] for host in lab.hosts().values()} == {"spare"}
