"""What is remembered of ranks whose snapshots nobody else keeps."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI
from sqlalchemy import insert
from tests.unit.monitor.test_counting import Clock

from everstep.monitor.api import routes
from everstep.monitor.events import Mark, WatchedHost
from everstep.monitor.projections import MARKS
from everstep.monitor.state import Watch
from everstep.monitor.uncopied import SILENT_MS_MAX, Uncopied, UncopiedRanks
from everstep.sim.tables import Tables
from everstep.wire.v1 import agents_pb2
from everstep.wire.v1.agents_pb2 import Heartbeat, RunningJob

HOSTS = tuple(WatchedHost(host_id=f"h{i}", ranks=(i,)) for i in range(3))
WATCH = Watch(job_id="j", generation=2, hosts=HOSTS)
FULL = "peer h2:9: no room: it needs 9 more bytes, 1 are free"


def beat(host_id: str, *, generation: int = 2, copied: bool = False) -> Heartbeat:
    """A heartbeat of a host whose peer is h2, and refuses for three seconds now."""
    without = agents_pb2.Uncopied(ranks=[0], peer_host_id="h2", why=FULL, age_ms=3_000)
    job = RunningJob(job_id="j", generation=generation, ranks=[0])
    if not copied:
        job.uncopied.CopyFrom(without)
    return Heartbeat(host_id=host_id, jobs=[job])


def test_ranks_without_copies_are_told_until_their_host_says_nothing_of_it():
    """Since when is on the monitor's clock; the hosts are in order."""
    clock = Clock()
    uncopied, since_ms = UncopiedRanks(clock), clock.ms - 3_000
    for host_id in ("h1", "h0"):
        uncopied.heard(beat(host_id))
    told = {"ranks": (0,), "peer_host_id": "h2", "why": FULL, "since_ms": since_ms}
    assert uncopied.of(WATCH) == (Uncopied(host_id="h0", **told), Uncopied(host_id="h1", **told))
    uncopied.heard(beat("h0", copied=True))
    assert [one.host_id for one in uncopied.of(WATCH)] == ["h1"]
    uncopied.heard(Heartbeat(host_id="h1"))
    assert uncopied.of(WATCH) == ()


def test_what_is_out_of_date_is_not_told():
    """Of a generation before, of a host that serves the job no more, of one that is silent."""
    clock = Clock()
    uncopied = UncopiedRanks(clock)
    uncopied.heard(beat("h0", generation=1))
    uncopied.heard(beat("h9"))
    uncopied.heard(beat("h1"))
    assert [one.host_id for one in uncopied.of(WATCH)] == ["h1"]
    clock.ms += SILENT_MS_MAX + 1
    assert uncopied.of(WATCH) == ()


async def test_api_lists_them_and_nothing_of_a_job_that_does_not_run():
    """As `everstep jobs show` asks for them."""

    class Watching:
        def watched(self, job_id):
            return WATCH if job_id == "j" else None

    class Store:
        @asynccontextmanager
        async def reading(self):
            yield tables.connection

    tables = Tables()
    for job_id in ("j", "over"):
        row = {"job_id": job_id, "version": 1, "generation": 1, "mark": Mark.BEGUN.value}
        await tables.execute(insert(MARKS).values(**row))
    clock, app = Clock(), FastAPI()
    uncopied = UncopiedRanks(clock)
    uncopied.heard(beat("h0"))
    app.include_router(routes(Store(), Watching(), uncopied, clock))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://m") as client:
        [one] = (await client.get("/v1/jobs/j/uncopied")).json()["uncopied"]
        over = (await client.get("/v1/jobs/over/uncopied")).json()
    assert one == {**one, "host_id": "h0", "ranks": [0], "peer_host_id": "h2", "why": FULL}
    assert over == {"uncopied": []}
