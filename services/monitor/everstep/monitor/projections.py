"""The monitor's read tables; ``incidents`` keeps the source document's columns."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text, insert, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.ports import StoredEvent
from everstep.monitor.codec import CODEC
from everstep.monitor.events import (
    IncidentClosed,
    IncidentOpened,
    IncidentRecovered,
    JobMarked,
    Mark,
    SourceRefused,
    StepAudited,
)

METADATA: Final = MetaData()

INCIDENTS: Final = Table(
    "incidents",
    METADATA,
    Column("incident_id", Text, primary_key=True),
    Column("job_id", Text),
    Column("generation", BigInteger),
    Column("kind", Text),
    Column("ranks", JSONB),
    Column("hosts", JSONB),
    Column("step", BigInteger),
    Column("action", Text),
    Column("reason", Text),
    Column("detail", Text),
    Column("failed_at_ms", BigInteger),
    Column("detected_at_ms", BigInteger),
    Column("recovered_at_ms", BigInteger),
    Column("lost_ms", BigInteger),
    Column("lost_steps", BigInteger),
    Column("closed_at_ms", BigInteger),
    Column("closed_because", Text),
    Column("suspect_from_step", BigInteger),
    Column("skipped", JSONB),
)

MARKS: Final = Table(
    "marks",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("generation", BigInteger),
    Column("mark", Text),
    Column("cause", Text),
    Column("step", BigInteger),
    Column("at_ms", BigInteger),
    Column("ranks", BigInteger),
)

STEP_METRICS: Final = Table(
    "step_metrics",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("loss", Float),
    Column("grad_norm", Float),
    Column("tokens", BigInteger),
    Column("step_time_ms", Float),
    Column("blocked_ms_min", Float),
    Column("data_wait_ms", Float),
    Column("stall_ms", Float),
    Column("shadow_ms", Float),
    Column("completed_at_ms", BigInteger),
    Column("health", Text),
    Column("position", BigInteger),
)


REFUSED_SOURCES: Final = Table(
    "refused_sources",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("generation", BigInteger),
    Column("rank", BigInteger),
    Column("step", BigInteger),
    Column("kind", Text),
    Column("host_id", Text),
    Column("uri", Text),
    Column("detail", Text),
    Column("at_ms", BigInteger),
)


AUDITS: Final = Table(
    "audits",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("step", BigInteger),
    Column("replica", BigInteger),
    Column("number", BigInteger),
    Column("audit_job_id", Text),
    Column("hosts", JSONB),
    Column("ranks", JSONB),
    Column("finding", Text),
    Column("why", Text),
    Column("at_ms", BigInteger),
)


class MonitorProjection:
    """Keeps ``incidents``, ``marks``, ``refused_sources`` and ``audits``."""

    async def apply(self, transaction: AsyncConnection, event: StoredEvent) -> None:
        """Update the row that the event is about."""
        fact = CODEC.decode(event.type, event.data)
        match fact:
            case IncidentOpened():
                await transaction.execute(insert(INCIDENTS).values(**_incident_row(fact)))
            case IncidentRecovered():
                await transaction.execute(
                    update(INCIDENTS)
                    .where(INCIDENTS.c.incident_id == fact.incident_id)
                    .values(
                        recovered_at_ms=fact.recovered_at_ms,
                        lost_ms=fact.lost_ms,
                        lost_steps=fact.lost_steps,
                    )
                )
            case IncidentClosed():
                await transaction.execute(
                    update(INCIDENTS)
                    .where(INCIDENTS.c.incident_id == fact.incident_id)
                    .values(closed_at_ms=fact.closed_at_ms, closed_because=fact.why)
                )
            case SourceRefused():
                await transaction.execute(
                    insert(REFUSED_SOURCES).values(version=event.version, **asdict(fact))
                )
            case StepAudited():
                await transaction.execute(
                    insert(AUDITS).values(version=event.version, **_audit_row(fact))
                )
            case JobMarked():
                await transaction.execute(
                    insert(MARKS).values(
                        job_id=fact.job_id,
                        version=event.version,
                        generation=fact.generation,
                        mark=fact.mark.value,
                        cause=fact.cause,
                        step=fact.step,
                        at_ms=fact.at_ms,
                        ranks=_ranks(fact),
                    )
                )
            case _:
                pass


def _ranks(fact: JobMarked) -> int:
    """Return how many ranks a job asked for, or was placed with; 0 where nothing tells."""
    if fact.mark is Mark.SUBMITTED:
        return fact.layout.world_size
    return sum(len(host.ranks) for host in fact.hosts)


def _incident_row(fact: IncidentOpened) -> dict[str, Any]:
    return {
        "incident_id": fact.incident_id,
        "job_id": fact.job_id,
        "generation": fact.generation,
        "kind": fact.kind,
        "ranks": list(fact.ranks),
        "hosts": list(fact.hosts),
        "step": fact.step,
        "action": fact.action.value,
        "reason": fact.reason,
        "detail": fact.detail,
        "failed_at_ms": fact.failed_at_ms,
        "detected_at_ms": fact.detected_at_ms,
        "suspect_from_step": fact.suspect_from_step,
        "skipped": [[one.first, one.end] for one in fact.skipped],
    }


def _audit_row(fact: StepAudited) -> dict[str, Any]:
    """Return what is told of an audit; what only a second one needs stays in its event."""
    return {
        "job_id": fact.job_id,
        "step": fact.step,
        "replica": fact.replica,
        "number": fact.number,
        "audit_job_id": fact.audit_job_id,
        "hosts": list(fact.hosts),
        "ranks": list(fact.ranks),
        "finding": fact.finding.value,
        "why": fact.why,
        "at_ms": fact.at_ms,
    }
