"""A job that would go on with less, or on a host that is not sound, wants what audits have."""

from __future__ import annotations

import pytest
from tests.spec import spec
from tests.unit.controller.facts import LAUNCHED, RUNNING, begun
from tests.unit.controller.test_runner import FakeFleet

from everstep.controller.codec import AGGREGATE
from everstep.controller.making_do import makes_do

JOBS = spec(AGGREGATE)
UNSOUND = JOBS.given(*RUNNING, begun(2, "recovery", unsound_hosts=("h1",))).state


@pytest.mark.parametrize("lost", [(), ("h0",)])
async def test_unsound_host_that_no_spare_can_replace_is_made_do_with(lost):
    """The inventory would place the job, so that it is not short: nobody would end an audit."""
    fleet = FakeFleet()
    assert not await makes_do(fleet, UNSOUND, lost)
    del fleet.spares[len(lost) or 1 :]
    assert await makes_do(fleet, UNSOUND, lost) is bool(lost)
    fleet.spares.clear()
    assert await makes_do(fleet, UNSOUND, lost)


async def test_job_that_is_new_makes_do_with_nothing():
    """It waits, and has the audits ended when it is told that hosts are short."""
    fleet = FakeFleet()
    fleet.spares.clear()
    assert not await makes_do(fleet, JOBS.given(*LAUNCHED).state, ())
    assert fleet.calls == []
