"""The statements of the PostgreSQL event store, each on a connection that the caller holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.ports import Consumed, NewEvent, StoredEvent
from everstep.eventstore import tables
from everstep.eventstore.memory import conflict, retried


async def insert(
    connection: AsyncConnection,
    stream: str,
    expected_version: int,
    events: Sequence[NewEvent],
    *,
    now_ms: int,
) -> list[StoredEvent]:
    """Insert if the stream is at the version; return nothing if it is not."""
    if not events:
        return []
    rows = await connection.execute(
        tables.INSERT,
        {
            "stream": stream,
            "version": expected_version,
            "event_ids": [event.event_id for event in events],
            "types": [event.type for event in events],
            "data": [event.data for event in events],
            "metadata": [event.metadata for event in events],
            "recorded_at": tables.timestamp(now_ms),
        },
    )
    inserted = sorted(rows, key=_by_version)
    if not inserted:
        return []
    return [
        StoredEvent(
            position=row.position,
            stream=stream,
            version=row.version,
            event_id=event.event_id,
            type=event.type,
            data=event.data,
            metadata=event.metadata,
            recorded_at_ms=now_ms,
        )
        for event, row in zip(events, inserted, strict=True)
    ]


async def explain(
    connection: AsyncConnection, stream: str, expected_version: int, events: Sequence[NewEvent]
) -> list[StoredEvent]:
    """Say why nothing was inserted: a retry (its events), nothing to insert, or a conflict."""
    version = await current_version(connection, stream)
    if version == expected_version and not events:
        return []
    known = await known_events(connection, stream, events)
    if known:
        return known
    raise conflict(stream, expected_version, version)


async def current_version(connection: AsyncConnection, stream: str) -> int:
    """Return the version of a stream, 0 if it does not exist."""
    query = select(func.max(tables.events.c.version)).where(tables.events.c.stream == stream)
    return (await connection.execute(query)).scalar_one_or_none() or 0


async def known_events(
    connection: AsyncConnection, stream: str, events: Sequence[NewEvent]
) -> list[StoredEvent]:
    """Return what an earlier append of the same ids stored; nothing if there was none."""
    if not events:
        return []
    query = (
        select(tables.events)
        .where(tables.events.c.event_id.in_([event.event_id for event in events]))
        .order_by(tables.events.c.position)
    )
    known = [tables.stored_event(row) for row in await connection.execute(query)]
    return retried(stream, events, known) if known else []


async def mark_consumed(connection: AsyncConnection, consumed: Consumed) -> bool:
    """Record the position and lock its row; say whether it is new."""
    row = upsert(tables.consumed).values(
        consumer=consumed.consumer, source=consumed.source, position=consumed.position
    )
    forward = row.on_conflict_do_update(
        index_elements=["consumer", "source"],
        set_={"position": row.excluded.position},
        where=tables.consumed.c.position < row.excluded.position,
    ).returning(tables.consumed.c.position)
    return (await connection.execute(forward)).scalar_one_or_none() is not None


def is_ours(error: IntegrityError) -> bool:
    """Say whether the event table refused a row, rather than a projection's."""
    cause = error.orig.__cause__ if error.orig is not None else None
    return getattr(cause, "table_name", None) == tables.events.name


def _by_version(row: Row[Any]) -> int:
    return int(row.version)
