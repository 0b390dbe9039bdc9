"""Which questions about a job are answered, and which job is not known."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import insert
from tests.unit.monitor.test_counting import Clock

from everstep.core.errors import NotFoundError
from everstep.monitor.api import routes
from everstep.monitor.events import Mark
from everstep.monitor.projections import INCIDENTS, MARKS
from everstep.monitor.uncopied import UncopiedRanks
from everstep.sim.tables import Tables


class Store:
    """What is stored of one job, and the loss of a host that served none."""

    def __init__(self) -> None:
        self.tables = Tables()

    async def fill(self) -> None:
        """Write the rows."""
        mark = {"job_id": "j", "version": 1, "generation": 0, "mark": Mark.SUBMITTED.value}
        await self.tables.execute(insert(MARKS).values(**mark))
        lost = {"incident_id": "i1", "job_id": "", "hosts": ["spare"], "kind": "host_lost"}
        await self.tables.execute(insert(INCIDENTS).values(**lost))

    @asynccontextmanager
    async def reading(self):
        """Open it."""
        yield self.tables.connection


@pytest.fixture
async def client():
    """Asks the monitor; what it refuses is raised here."""
    store, clock = Store(), Clock()
    await store.fill()
    transport = httpx.ASGITransport(app=_app(store, clock))
    async with httpx.AsyncClient(transport=transport, base_url="http://m") as client:
        yield client


def _app(store: Store, clock: Clock) -> FastAPI:
    app = FastAPI()
    app.include_router(routes(store, None, UncopiedRanks(clock), clock))
    return app


@pytest.mark.parametrize(
    ("query", "found"), [({}, ["i1"]), ({"job_id": ""}, ["i1"]), ({"job_id": "j"}, [])]
)
async def test_incidents_of_all_jobs_or_of_one_that_is_known_are_listed(client, query, found):
    """A job that has just been submitted has none; those of no job are listed with all."""
    answer = await client.get("/v1/incidents", params=query)
    assert [one["incident_id"] for one in answer.json()["incidents"]] == found


async def test_incidents_of_a_job_that_nobody_has_told_of_are_not_found(client):
    """An empty list would say that all is well with it: its id may be mistyped."""
    with pytest.raises(NotFoundError, match="knows no job 'tyni'"):
        await client.get("/v1/incidents", params={"job_id": "tyni"})
