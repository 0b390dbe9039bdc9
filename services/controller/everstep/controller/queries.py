"""Reads the controller's tables for the API."""

from __future__ import annotations

from math import prod
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.controller.projections import GENERATIONS, INTERVALS, JOBS

_STAGES = ("fenced", "placed", "planned", "started", "running")


async def all_jobs(
    connection: AsyncConnection, *, with_audits: bool = False
) -> list[dict[str, Any]]:
    """Return every job without its generations, newest first; audits only if asked for."""
    found = select(JOBS).order_by(JOBS.c.submitted_at_ms.desc())
    if not with_audits:
        found = found.where(JOBS.c.spec["audit"]["job_id"].astext.is_(None))
    rows = await connection.execute(found)
    return [_job(dict(row)) for row in rows.mappings()]


async def live_job_ids(connection: AsyncConnection) -> list[str]:
    """Return the jobs that have not ended."""
    rows = await connection.execute(
        select(JOBS.c.job_id).where(JOBS.c.ended_at_ms.is_(None)).order_by(JOBS.c.job_id)
    )
    return [row.job_id for row in rows]


async def one_job(connection: AsyncConnection, job_id: str) -> dict[str, Any] | None:
    """Return a job with the stages of each of its generations."""
    row = (await connection.execute(select(JOBS).where(JOBS.c.job_id == job_id))).mappings().first()
    if row is None:
        return None
    rows = await connection.execute(
        select(GENERATIONS).where(GENERATIONS.c.job_id == job_id).order_by(GENERATIONS.c.generation)
    )
    recoveries = [_generation(dict(r)) for r in rows.mappings()]
    found = _job(dict(row))
    since_ms = reduced_since(recoveries, found["world_size"])
    return {**found, "reduced_since_ms": since_ms, "recoveries": recoveries}


async def stage_times(
    connection: AsyncConnection, job_id: str, generation: int
) -> dict[str, int | None]:
    """Return the times of a generation's events, and from where its ranks load."""
    c = GENERATIONS.c
    names = ("begun", "fenced", "placed", "short", "planned", "started")
    counts = ("own_memory", "peer_memory", "object_store")
    columns = [c[f"{name}_at_ms"] for name in names] + [c[name] for name in counts]
    rows = await connection.execute(
        select(*columns).where(c.job_id == job_id, c.generation == generation)
    )
    row = rows.mappings().first()
    return dict(row) if row is not None else {}


async def intervals(connection: AsyncConnection, job_id: str) -> list[dict[str, Any]]:
    """Return every schedule that was decided for a job, oldest first."""
    rows = await connection.execute(
        select(INTERVALS).where(INTERVALS.c.job_id == job_id).order_by(INTERVALS.c.version)
    )
    return [dict(row) for row in rows.mappings()]


def _job(row: dict[str, Any]) -> dict[str, Any]:
    layout = row["spec"].get("layout", {})
    sizes = {name: layout.get(name, 1) for name in ("pp", "dp_replicate", "dp_shard", "tp")}
    world_size = prod(sizes.values())
    return {
        **{key: row[key] for key in ("job_id", "name", "phase", "generation", "step")},
        "world_size": world_size,
        "ranks": _ranks((row["placement"] or {}).get("layout")),
        "layout": sizes,
        "steps": row["spec"]["steps"],
        "placement": row["placement"],
        "restore_step": row["restore_step"],
        "hosts_short": row["missing"],
        "why": row["why"],
        "detail": row["detail"],
        "submitted_at_ms": row["submitted_at_ms"],
        "ended_at_ms": row["ended_at_ms"],
        "spec": row["spec"],
    }


def _generation(row: dict[str, Any]) -> dict[str, Any]:
    """Return a generation; each stage's milliseconds since the one before it was done.

    Fencing and placing overlap: both count from the begin, and planning from the later of them.
    """
    begun = row["begun_at_ms"]
    at = {stage: row[f"{stage}_at_ms"] for stage in _STAGES}
    ready = max((t for t in (at["fenced"], at["placed"]) if t is not None), default=begun)
    before = {
        "fenced": begun,
        "placed": begun,
        "planned": ready,
        "started": at["planned"],
        "running": at["started"],
    }
    names = {
        "fenced": "fence",
        "placed": "place",
        "planned": "plan",
        "started": "start",
        "running": "first_step",
    }
    stages = {
        names[stage]: at[stage] - (before[stage] or begun)
        for stage in _STAGES
        if at[stage] is not None
    }
    kept = (
        "generation",
        "cause",
        "incident_id",
        "lost_hosts",
        "unsound_hosts",
        "replacements",
        "remark",
        "unreachable",
        "from_step",
        "restore_step",
        "begun_at_ms",
        "short_at_ms",
        "running_at_ms",
    )
    return {
        **{key: row[key] for key in kept},
        "ranks": _ranks(row["layout"]),
        "sources": {key: row[key] for key in ("own_memory", "peer_memory", "object_store")},
        "stages_ms": stages,
    }


def _ranks(layout: dict[str, int] | None) -> int:
    """Return how many ranks a layout has; 0 for none yet."""
    return prod(layout.values()) if layout else 0


def reduced_since(recoveries: list[dict[str, Any]], world_size: int) -> int | None:
    """Return since when a job has had fewer ranks than it should; None if it has all of them."""
    since_ms = None
    for recovery in recoveries:
        if recovery["ranks"] >= world_size:
            since_ms = None
        elif recovery["ranks"] and since_ms is None:
            since_ms = recovery["begun_at_ms"]
    return since_ms
