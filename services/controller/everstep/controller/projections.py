"""The read tables, kept in the transaction that appends.

The phase is not worked out here a second time: each event's effect on it comes from ``evolve``.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Executable,
    Integer,
    MetaData,
    Table,
    Text,
    case,
    insert,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.controller import events as e
from everstep.controller.codec import CODEC
from everstep.controller.state import TERMINAL, Phase, phase_after
from everstep.core.ports import StoredEvent

METADATA: Final = MetaData()

JOBS: Final = Table(
    "jobs",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("name", Text),
    Column("phase", Text),
    Column("generation", BigInteger),
    Column("step", BigInteger),
    Column("spec", JSONB),
    Column("placement", JSONB),
    Column("restore_step", BigInteger),
    Column("missing", Integer),
    Column("why", Text),
    Column("detail", Text),
    Column("submitted_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
)

GENERATIONS: Final = Table(
    "generations",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("cause", Text),
    Column("incident_id", Text),
    Column("lost_hosts", JSONB),
    Column("replacements", JSONB),
    Column("unreachable", JSONB),
    Column("from_step", BigInteger),
    Column("restore_step", BigInteger),
    Column("own_memory", Integer),
    Column("peer_memory", Integer),
    Column("object_store", Integer),
    Column("begun_at_ms", BigInteger),
    Column("fenced_at_ms", BigInteger),
    Column("placed_at_ms", BigInteger),
    Column("short_at_ms", BigInteger),
    Column("planned_at_ms", BigInteger),
    Column("started_at_ms", BigInteger),
    Column("running_at_ms", BigInteger),
    Column("unsound_hosts", JSONB),
    Column("remark", Text),
    Column("layout", JSONB),
)


INTERVALS: Final = Table(
    "intervals",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("generation", BigInteger),
    Column("memory_every_steps", BigInteger),
    Column("object_every_steps", BigInteger),
    Column("auto", Boolean),
    Column("reason", Text),
    Column("grounds", JSONB),
    Column("waste_before", Double),
    Column("waste_after", Double),
    Column("decided_at_ms", BigInteger),
    Column("in_force_generation", BigInteger),
    Column("in_force_step", BigInteger),
    Column("in_force_at_ms", BigInteger),
)


class JobsProjection:
    """Keeps the tables."""

    async def apply(self, transaction: AsyncConnection, event: StoredEvent) -> None:
        """Update the row of the job and of its generation."""
        fact = CODEC.decode(event.type, event.data)
        if isinstance(fact, e.JobSubmitted):
            await transaction.execute(
                insert(JOBS).values(
                    job_id=fact.job_id,
                    name=fact.name,
                    phase=Phase.LAUNCHING.value,
                    generation=0,
                    step=0,
                    spec=json.loads(fact.spec_json),
                    missing=0,
                    why="",
                    detail="",
                    submitted_at_ms=fact.at_ms,
                )
            )
            return
        if isinstance(fact, e.IntervalChanged | e.IntervalInForce):
            await transaction.execute(_interval(fact))
            return
        if isinstance(fact, e.GenerationBegun):
            await transaction.execute(insert(GENERATIONS).values(**_begun(fact)))
        elif changed := _generation_changes(fact):
            await transaction.execute(
                update(GENERATIONS)
                .where(
                    GENERATIONS.c.job_id == fact.job_id,
                    GENERATIONS.c.generation == changed.pop("generation"),
                )
                .values(**changed)
            )
        job_changes = _job_changes(fact)
        phase = await self._phase(transaction, fact)
        if phase is not None:
            job_changes["phase"] = phase.value
            if phase in TERMINAL:
                job_changes["ended_at_ms"] = fact.at_ms
        if job_changes:
            await transaction.execute(
                update(JOBS).where(JOBS.c.job_id == fact.job_id).values(**job_changes)
            )

    async def _phase(self, transaction: AsyncConnection, fact: e.Event) -> Phase | None:
        if not isinstance(fact, e.PlacementDecided):
            return phase_after(fact, cause="")
        cause = await transaction.scalar(
            select(GENERATIONS.c.cause).where(
                GENERATIONS.c.job_id == fact.job_id,
                GENERATIONS.c.generation == fact.generation,
            )
        )
        return phase_after(fact, cause=str(cause))


def _interval(fact: e.IntervalChanged | e.IntervalInForce) -> Executable:
    if isinstance(fact, e.IntervalChanged):
        return insert(INTERVALS).values(
            job_id=fact.job_id,
            version=fact.schedule.version,
            generation=fact.generation,
            memory_every_steps=fact.schedule.memory_every_steps,
            object_every_steps=fact.schedule.object_every_steps,
            auto=fact.auto,
            reason=fact.reason,
            grounds=msgspec.to_builtins(fact.grounds),
            waste_before=fact.waste_before,
            waste_after=fact.waste_after,
            decided_at_ms=fact.at_ms,
        )
    return (
        update(INTERVALS)
        .where(INTERVALS.c.job_id == fact.job_id, INTERVALS.c.version == fact.version)
        .values(
            in_force_generation=fact.generation,
            in_force_step=fact.step,
            in_force_at_ms=fact.at_ms,
        )
    )


def _begun(fact: e.GenerationBegun) -> dict[str, Any]:
    return {
        "job_id": fact.job_id,
        "generation": fact.generation,
        "cause": fact.cause,
        "incident_id": fact.incident_id,
        "lost_hosts": list(fact.lost_hosts),
        "unsound_hosts": list(fact.unsound_hosts),
        "replacements": [],
        "unreachable": [],
        "from_step": fact.from_step,
        "begun_at_ms": fact.at_ms,
        "remark": fact.remark,
    }


def _generation_changes(fact: e.Event) -> dict[str, Any]:
    match fact:
        case e.HostsFenced():
            changes: dict[str, Any] = {
                "fenced_at_ms": fact.at_ms,
                "unreachable": list(fact.unreachable),
            }
        case e.PlacementDecided():
            changes = {
                "placed_at_ms": fact.at_ms,
                "replacements": list(fact.replacements),
                "layout": msgspec.to_builtins(fact.placement.layout),
            } | ({"remark": fact.remark} if fact.remark else {})
        case e.HostsShort():
            changes = {"short_at_ms": fact.at_ms}
        case e.RestoreDecided():
            changes = {
                "planned_at_ms": fact.at_ms,
                "restore_step": fact.step,
                "own_memory": fact.own_memory,
                "peer_memory": fact.peer_memory,
                "object_store": fact.object_store,
            }
        case e.RanksStarted():
            changes = {"started_at_ms": fact.at_ms}
        case e.JobRunning():
            changes = {"running_at_ms": fact.at_ms}
        case _:
            return {}
    return {**changes, "generation": fact.generation}


def _job_changes(fact: e.Event) -> dict[str, Any]:
    match fact:
        case e.GenerationBegun():
            # A job that had ended may be restarted; its hosts may serve another by then.
            open_again = {
                "ended_at_ms": None,
                "why": "",
                "placement": case((JOBS.c.ended_at_ms.is_(None), JOBS.c.placement), else_=null()),
            }
            return {
                "generation": fact.generation,
                "missing": 0,
                "detail": fact.remark,
                **open_again,
            }
        case e.PlacementDecided():
            detail = {"detail": fact.remark} if fact.remark else {}
            return {"placement": msgspec.to_builtins(fact.placement), "missing": 0, **detail}
        case e.HostsShort():
            return {"missing": fact.missing}
        case e.DrainRequested():
            hosts, why = ", ".join(fact.hosts), f": {fact.why}" if fact.why else ""
            return {"detail": f"moves off {hosts} once spares are there{why}"}
        case e.RestoreDecided():
            return {"restore_step": fact.step}
        case e.JobRunning():
            return {"step": fact.step}
        case e.JobSucceeded():
            return {"step": fact.step, "detail": fact.detail}
        case e.JobFailed():
            return {"why": fact.why, "detail": fact.detail}
        case e.JobStopped():
            return {"detail": fact.detail} if fact.detail else {}
        case _:
            return {}
