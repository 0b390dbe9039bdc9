"""The monitor's HTTP API: incidents, curves, goodput."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from everstep.core.errors import NotFoundError
from everstep.core.system import Clock
from everstep.eventstore.postgres import PostgresStore
from everstep.monitor import queries
from everstep.monitor.accounts import Accounts
from everstep.monitor.ledger import Cause
from everstep.monitor.looking import told
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.watcher import Watcher


def routes(
    store: PostgresStore, watcher: Watcher, uncopied: UncopiedRanks, clock: Clock
) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["monitor"])
    accounts = Accounts(store.reading, clock)

    @router.get("/incidents")
    async def incidents(job_id: str | None = None) -> dict[str, Any]:
        """List incidents, oldest first; of one job if asked."""
        async with store.reading() as connection:
            if job_id:
                await queries.require_job(connection, job_id)
            return {"incidents": await queries.incidents(connection, job_id)}

    @router.get("/jobs/{job_id}/metrics")
    async def metrics(
        job_id: str,
        after_step: Annotated[int, Query(ge=-1, le=queries.STEP_MAX)] = -1,
        limit: Annotated[int, Query(ge=1, le=queries.POINTS_MAX)] = 1_000,
    ) -> dict[str, Any]:
        """Return one point a step: loss, gradient norm, tokens, times."""
        async with store.reading() as connection:
            await queries.require_job(connection, job_id)
            return {"points": await queries.points(connection, job_id, after_step, limit)}

    @router.get("/jobs/{job_id}/goodput")
    async def goodput(job_id: str) -> dict[str, Any]:
        """Return wall time by cause; the causes sum to it exactly."""
        ledger = await accounts.ledger(job_id)
        if ledger is None:
            raise queries.unknown_job(job_id)
        useful = ledger.causes[Cause.USEFUL]
        share = useful / ledger.wall_ms if ledger.wall_ms else 0.0
        return {
            "wall_ms": ledger.wall_ms,
            "causes": {cause.value: ms for cause, ms in ledger.causes.items()},
            "goodput": share,
        }

    @router.get("/jobs/{job_id}/refused-sources")
    async def refused_sources(job_id: str) -> dict[str, Any]:
        """List copies of the job's state that could not be used, and why."""
        async with store.reading() as connection:
            await queries.require_job(connection, job_id)
            return {"refused_sources": await queries.refused_sources(connection, job_id)}

    @router.get("/jobs/{job_id}/audits")
    async def audits(
        job_id: str, limit: Annotated[int, Query(ge=1, le=queries.AUDITS_MAX)] = 100
    ) -> dict[str, Any]:
        """List what came of steps that hosts outside the job did again, newest first."""
        async with store.reading() as connection:
            await queries.require_job(connection, job_id)
            return {"audits": await queries.audits(connection, job_id, limit)}

    @router.get("/jobs/{job_id}/uncopied")
    async def without_copies(job_id: str) -> dict[str, Any]:
        """List ranks whose snapshots no other host keeps though one should, and why."""
        async with store.reading() as connection:
            await queries.require_job(connection, job_id)
        watch = watcher.watched(job_id)
        return {"uncopied": [asdict(one) for one in uncopied.of(watch)] if watch else []}

    @router.get("/jobs/{job_id}/stacks")
    async def stacks(job_id: str) -> dict[str, Any]:
        """Look at what every rank does right now: ranks in the same place are one group."""
        watch = watcher.watched(job_id)
        if watch is None or not watch.placed:
            raise NotFoundError(f"job {job_id!r} does not run: `everstep jobs` lists those that do")
        return told(await watcher.look(watch), watch)

    @router.get("/sight")
    async def sight() -> dict[str, Any]:
        """Say whether the monitor can judge, and why not."""
        return {"blind": bool(watcher.blind), "reason": watcher.blind}

    return router
