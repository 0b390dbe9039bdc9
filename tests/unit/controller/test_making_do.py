"""A job that would go on with less, or on a host that is not sound, wants what audits have."""

from __future__ import annotations

import asyncio

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, LAUNCHED, RUNNING, begun
from tests.unit.controller.test_runner import FakeFleet, launched, lost, state_of
from tests.waiting import until as wait_until

from everstep.controller.auditing import launch_of
from everstep.controller.codec import AGGREGATE
from everstep.controller.making_do import makes_do
from everstep.controller.state import Phase
from everstep.core.system import SystemClock
from everstep.eventstore.memory import MemoryStore

JOBS = spec(AGGREGATE)
UNSOUND = JOBS.given(*RUNNING, begun(2, "recovery", unsound_hosts=("h1",))).state


@pytest.mark.parametrize("away", [(), ("h0",)])
async def test_unsound_host_that_no_spare_can_replace_is_made_do_with(away):
    """The inventory would place the job, so that it is not short: nobody would end an audit."""
    fleet = FakeFleet()
    assert not await makes_do(fleet, UNSOUND, away)
    del fleet.spares[len(away) or 1 :]
    assert await makes_do(fleet, UNSOUND, away) is bool(away)
    fleet.spares.clear()
    assert await makes_do(fleet, UNSOUND, away)


async def test_job_that_is_new_makes_do_with_nothing():
    """It waits, and has the audits ended when it is told that hosts are short."""
    fleet = FakeFleet()
    fleet.spares.clear()
    assert not await makes_do(fleet, JOBS.given(*LAUNCHED).state, ())
    assert fleet.calls == []


async def test_audit_ends_as_soon_as_a_job_lacks_hosts():
    """It would have waited for nobody, and nobody needs it."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    works = ["0" * 16 + ":" + "0" * 16] * 4
    audit = launch_of(await state_of(store), step=5, replica=0, number=1, works=works, at_ms=3)
    await runner.apply(audit)
    await wait_until(lambda: fleet.calls.count("plan 1") == 2)
    fleet.spares.clear()
    await runner.apply(lost("h1"))
    async with asyncio.timeout(20):
        while (job := await runner.state(audit.job_id)).phase is not Phase.STOPPED:
            await asyncio.sleep(0)
    ends = [e.data for e in await store.load(f"job-{audit.job_id}") if e.type == "job_stopped.v1"]
    assert ends[0]["detail"] == f"job {JOB} wants the hosts that it has"
    assert job.generation == 1
    await runner.close()
