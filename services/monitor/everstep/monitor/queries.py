"""Reads the monitor's tables for the API."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.errors import NotFoundError
from everstep.monitor.accounts import Account
from everstep.monitor.detectors.spike import Sound
from everstep.monitor.doubts import Doubt, doubts_after
from everstep.monitor.events import SILENT_CORRUPTION, Action, Mark
from everstep.monitor.ledger import Ledger
from everstep.monitor.measurements import Kept
from everstep.monitor.projections import (
    AUDITS,
    INCIDENTS,
    MARKS,
    REFUSED_SOURCES,
    STEP_METRICS,
)

STEP_MAX: Final = 2**53  # beyond it JSON readers lose digits; a run has millions
WINDOW_MAX: Final = 4_096  # numerics.window_steps is no longer
AUDITS_MAX: Final = 1_000  # told at once; a run has one an hour
DOUBTS_READ_MAX: Final = 1_000  # of incidents with hosts that were wrong: the older have faded
POINTS_MAX: Final = 10_000  # a page of a curve; ask again with after_step for more


async def incidents(connection: AsyncConnection, job_id: str | None) -> list[dict[str, Any]]:
    """Return incidents, oldest first."""
    query = select(INCIDENTS).order_by(INCIDENTS.c.detected_at_ms, INCIDENTS.c.incident_id)
    if job_id is not None:
        query = query.where(INCIDENTS.c.job_id == job_id)
    return [dict(row) for row in (await connection.execute(query)).mappings()]


async def doubts_elsewhere(connection: AsyncConnection, job_id: str) -> tuple[Doubt, ...]:
    """Return what doubts all jobs but one have left; a host that any job named takes its own."""
    table = INCIDENTS.c
    query = (
        select(table.job_id, table.action, table.hosts, table.detected_at_ms)
        .where(table.kind == SILENT_CORRUPTION)
        .order_by(table.detected_at_ms.desc(), table.incident_id)
        .limit(DOUBTS_READ_MAX)
    )
    doubts: tuple[Doubt, ...] = ()
    for row in reversed((await connection.execute(query)).all()):
        newest = Doubt(hosts=tuple(row.hosts), at_ms=row.detected_at_ms)
        counts = row.job_id != job_id
        doubts = doubts_after(doubts, Action(row.action), newest, counts=counts)
    return doubts


async def refused_sources(connection: AsyncConnection, job_id: str) -> list[dict[str, Any]]:
    """Return copies of the job's state that could not be used, oldest first."""
    table = REFUSED_SOURCES
    query = select(table).where(table.c.job_id == job_id).order_by(table.c.version)
    return [dict(row) for row in (await connection.execute(query)).mappings()]


async def audits(connection: AsyncConnection, job_id: str, limit: int) -> list[dict[str, Any]]:
    """Return what audits of the job have come to, newest first; at most ``limit``."""
    table = AUDITS
    query = select(table).where(table.c.job_id == job_id).order_by(table.c.version.desc())
    found = []
    for row in (await connection.execute(query.limit(min(limit, AUDITS_MAX)))).mappings():
        audit = dict(row)
        for name in ("job_id", "version"):
            audit.pop(name)
        found.append(audit)
    return found


async def watched_jobs(connection: AsyncConnection) -> dict[str, Kept]:
    """Return the jobs that were begun and have not ended, with the newest step kept of each.

    Newest is the last one of the newest generation that has any.
    """
    newest_of = {
        mark: func.max(case((MARKS.c.mark == mark.value, MARKS.c.version), else_=0))
        for mark in (Mark.BEGUN, Mark.ENDED)
    }
    ended = (
        select(MARKS.c.job_id)
        .group_by(MARKS.c.job_id)
        .having(newest_of[Mark.ENDED] > newest_of[Mark.BEGUN])
    )
    kept = STEP_METRICS.alias()
    newest = (
        select(func.coalesce(func.max(kept.c.generation), 0))
        .where(kept.c.job_id == MARKS.c.job_id)
        .correlate(MARKS)
        .scalar_subquery()
    )
    last = (
        select(func.coalesce(func.max(STEP_METRICS.c.step), 0))
        .where(STEP_METRICS.c.job_id == MARKS.c.job_id, STEP_METRICS.c.generation == newest)
        .correlate(MARKS)
        .scalar_subquery()
    )
    query = select(MARKS.c.job_id, newest.label("generation"), last.label("step"))
    query = query.where(MARKS.c.job_id.not_in(ended)).distinct().order_by(MARKS.c.job_id)
    rows = await connection.execute(query)
    return {
        row.job_id: Kept(
            generation=row.generation,
            step=row.step,
            window=await _window(connection, row.job_id, row.step),
        )
        for row in rows.all()
    }


async def kept_of(connection: AsyncConnection, job_id: str) -> Kept:
    """Return the newest step that is kept of a job, whether it has ended or not."""
    table = STEP_METRICS.c
    newest = select(func.coalesce(func.max(table.generation), 0)).where(table.job_id == job_id)
    last = select(func.coalesce(func.max(table.step), 0)).where(table.job_id == job_id)
    generation = int((await connection.execute(newest)).scalar_one())
    last = last.where(table.generation == generation)
    step = int((await connection.execute(last)).scalar_one())
    window = await _window(connection, job_id, step)
    return Kept(generation=generation, step=step, window=window)


async def _window(connection: AsyncConnection, job_id: str, step: int) -> tuple[Sound, ...]:
    """Return the steps up to ``step`` that a job's loss can be measured against, oldest first."""
    found = await points(connection, job_id, step - WINDOW_MAX, WINDOW_MAX, to_step=step)
    return tuple(
        Sound(
            step=point["step"],
            loss=point["loss"],
            norm=point["grad_norm"],
            position=point["position"],
        )
        for point in found
        if point["loss"] is not None and point["grad_norm"] is not None
    )


async def points(
    connection: AsyncConnection,
    job_id: str,
    after_step: int,
    limit: int,
    *,
    to_step: int = STEP_MAX,
) -> list[dict[str, Any]]:
    """Return the newest generation's row of each step, in step order; ``to_step`` is the last."""
    newest = (
        select(
            STEP_METRICS.c.step,
            func.max(STEP_METRICS.c.generation).label("generation"),
            func.count().label("times"),
        )
        .where(
            STEP_METRICS.c.job_id == job_id,
            STEP_METRICS.c.step > after_step,
            STEP_METRICS.c.step <= to_step,
        )
        .group_by(STEP_METRICS.c.step)
        .order_by(STEP_METRICS.c.step)
        .limit(min(limit, POINTS_MAX))
        .subquery()
    )
    query = (
        select(STEP_METRICS, newest.c.times)
        .join(
            newest,
            (STEP_METRICS.c.step == newest.c.step)
            & (STEP_METRICS.c.generation == newest.c.generation),
        )
        .where(STEP_METRICS.c.job_id == job_id)
        .order_by(STEP_METRICS.c.step)
    )
    found = []
    for row in (await connection.execute(query)).mappings():
        point = dict(row)
        point["redone"] = point.pop("times") > 1
        point.pop("job_id")
        found.append(point)
    return found


async def require_job(connection: AsyncConnection, job_id: str) -> None:
    """Raise NotFoundError for a job that was never begun; an ended one is known for ever."""
    query = select(MARKS.c.job_id).where(MARKS.c.job_id == job_id).limit(1)
    if (await connection.execute(query)).first() is None:
        raise unknown_job(job_id)


def unknown_job(job_id: str) -> NotFoundError:
    """Return the error for a job that was never begun."""
    return NotFoundError(f"the monitor knows no job {job_id!r}; `everstep jobs` lists them")


async def ledger(connection: AsyncConnection, job_id: str, now_ms: int) -> Ledger | None:
    """Return the job's goodput ledger up to its end or ``now_ms``; None for an unknown job.

    Reads all its steps; ``accounts.Accounts`` keeps what it has read.
    """
    return await Account(job_id).ledger(connection, now_ms)
