"""Hosts that a job has left when its layout changed are asked what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.controller.facts import JOB
from tests.unit.controller.test_runner import FakeFleet, launched, until

from everstep.controller.commands import RecoverJob, Verdict
from everstep.controller.outside import Placed, Planned
from everstep.controller.state import Job
from everstep.core.decision import Rejected
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.system import SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.wire.v1.checkpoints_pb2 import HostHoldings

HALF = Placement(
    layout=Layout(tp=2), hosts=(HostPlacement(host_id="h0", ranks=(0, 1), peer_port=9),)
)
AGAIN = RecoverJob(job_id=JOB, generation=1, incident_id="i", verdict=Verdict.RESTART)


class ShrinkingFleet(FakeFleet):
    """After the launch there is room on one host only."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, list[tuple[str, int]]] = {}

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        if job.generation == 1:
            return await super().place(job, lost_hosts)
        return Placed(placement=HALF, replacements=(), missing=0)

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        self.asked[job.generation] = [(one.host_id, one.peer_port) for one in holdings]
        return await super().plan(job, holdings, from_step)


@pytest.mark.parametrize("answers", [True, False])
async def test_host_that_was_left_is_asked_at_the_next_restart(answers):
    """No step has been made since. If it is gone by then, the job goes on without it.

    Snapshots of a placed host are fetched where the inventory knows it, not where it says.
    """
    store, fleet = MemoryStore(clock=SystemClock()), ShrinkingFleet()
    runner = await launched(store, fleet)
    await runner.apply(AGAIN)
    await until(store, lambda job: job.generation == 2 and job.started)
    if not answers:
        fleet.dead.add("h1")
    await runner.apply(replace(AGAIN, generation=2, incident_id="j"))
    job = await until(store, lambda job: job.generation == 3 and job.started)
    assert fleet.asked[2] == [("h0", 9), ("h1", 0)]
    assert fleet.asked[3] == ([("h0", 9), ("h1", 0)] if answers else [("h0", 9)])
    assert (job.leftovers, job.generation) == (("h1",), 3)
    await runner.close()
