"""Which questions about a job are answered, and which job is not known."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import insert
from tests.unit.monitor.test_counting import Clock

from everstep.core.errors import NotFoundError
from everstep.core.ports import StoredEvent
from everstep.monitor.api import routes
from everstep.monitor.codec import CODEC
from everstep.monitor.events import Finding, Mark, StepAudited
from everstep.monitor.projections import INCIDENTS, MARKS
from everstep.monitor.uncopied import UncopiedRanks
from everstep.sim.tables import Tables

NAMED = StepAudited(
    job_id="j",
    step=200,
    replica=1,
    number=2,
    audit_job_id="a2",
    hosts=("s1", "s2"),
    ranks=(3,),
    finding=Finding.NAMED,
    why="h3 was wrong",
    at_ms=90,
)
DIFFERED = replace(NAMED, number=1, finding=Finding.DIFFERS, works=("1:1",), seats=("s1",))
AUDITED = (DIFFERED, NAMED)


class Store:
    """What is stored of one job, and the loss of a host that served none."""

    def __init__(self) -> None:
        self.tables = Tables()

    async def fill(self) -> None:
        """Write the rows."""
        mark = {"job_id": "j", "version": 1, "generation": 0, "mark": Mark.SUBMITTED.value}
        await self.tables.execute(insert(MARKS).values(**mark))
        await self.tables.execute(insert(MARKS).values(**{**mark, "job_id": "k"}))
        for version, finding in enumerate(AUDITED):
            event = StoredEvent(
                position=version,
                stream="watch-j",
                version=version,
                event_id=f"e{version}",
                type="step_audited.v1",
                data=CODEC.encode(finding)[1],
                metadata={},
                recorded_at_ms=0,
            )
            await self.tables.apply(None, event)
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


async def test_what_audits_have_come_to_is_listed_newest_first(client):
    """As much of it as is asked for; what only the monitor needs is not told."""
    newest, oldest = (await client.get("/v1/jobs/j/audits")).json()["audits"]
    assert newest == {
        "step": 200,
        "replica": 1,
        "number": 2,
        "audit_job_id": "a2",
        "hosts": ["s1", "s2"],
        "ranks": [3],
        "finding": "named",
        "why": "h3 was wrong",
        "at_ms": 90,
    }
    assert (oldest["number"], oldest["finding"]) == (1, "differs")
    one = await client.get("/v1/jobs/j/audits", params={"limit": 1})
    assert one.json()["audits"] == [newest]
    assert (await client.get("/v1/jobs/k/audits")).json() == {"audits": []}
    with pytest.raises(NotFoundError, match="knows no job 'tyni'"):
        await client.get("/v1/jobs/tyni/audits")
    assert (await client.get("/v1/jobs/j/audits", params={"limit": 0})).status_code == 422


async def test_incidents_of_a_job_that_nobody_has_told_of_are_not_found(client):
    """An empty list would say that all is well with it: its id may be mistyped."""
    with pytest.raises(NotFoundError, match="knows no job 'tyni'"):
        await client.get("/v1/incidents", params={"job_id": "tyni"})
