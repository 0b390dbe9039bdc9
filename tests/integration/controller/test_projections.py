"""The controller's tables, from its events, in a real database."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.facts import JOB, PLACED_1, RUNNING, begun, placement

import everstep.controller.projections as controller
from everstep.controller import queries
from everstep.controller.codec import CODEC
from everstep.controller.events import Event, JobStopped, PlacementDecided
from everstep.core.ports import NewEvent
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.postgres import PostgresStore

MIGRATIONS = Path(str(controller.__file__)).parent / "migrations"
STOPPED = JobStopped(job_id=JOB, generation=1, at_ms=5)


async def hosts_after(database_url: str, *events: Event) -> list[str] | None:
    """The hosts that a job is shown on; None: on none."""
    ids = RandomIds()
    async with PostgresStore.open(
        database_url,
        clock=SystemClock(),
        migrations=[MIGRATIONS],
        projections=[controller.JobsProjection()],
    ) as store:
        new = []
        for event in events:
            kind, data = CODEC.encode(event)
            new.append(NewEvent(event_id=ids.new_id("e"), type=kind, data=data))
        await store.append("job", 0, new)
        async with store.reading() as connection:
            job = await queries.one_job(connection, JOB)
    assert job is not None
    placed = job["placement"]
    return None if placed is None else [host["host_id"] for host in placed["hosts"]]


PLACED_4 = PlacementDecided(job_id=JOB, generation=4, placement=placement("h2", "h3"))


@pytest.mark.parametrize(
    ("events", "hosts"),
    [
        ((STOPPED,), ["h0", "h1"]),
        ((begun(2, "recovery"),), ["h0", "h1"]),
        ((STOPPED, begun(4, "restart")), None),
        ((STOPPED, begun(4, "restart"), PLACED_4), ["h2", "h3"]),
    ],
)
async def test_job_that_had_ended_is_on_no_host_until_it_has_new_ones(database_url, events, hosts):
    """Its old ones may serve another by then; what recovers is still where it was."""
    assert PLACED_1 in RUNNING
    assert await hosts_after(database_url, *RUNNING, *events) == hosts
