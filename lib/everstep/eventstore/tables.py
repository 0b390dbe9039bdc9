"""The event store's tables, as SQLAlchemy Core sees them; ``migrations/`` creates them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Row, Table, Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from everstep.core.ports import StoredEvent

metadata: Final = MetaData()

events: Final = Table(
    "events",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=True),
    Column("stream", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("event_id", Text, nullable=False, unique=True),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    Column("metadata", JSONB, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False),
)

consumed: Final = Table(
    "consumed",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)

cursors: Final = Table(
    "cursors",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)

# Checks the version and takes the positions in one round trip, while the append lock is held. Rows
# are inserted in the order of ``order by``, so positions grow with versions.
INSERT: Final = text(
    """
    insert into events (stream, version, event_id, type, data, metadata, recorded_at)
    select :stream, :version + new.index, new.event_id, new.type, new.data, new.metadata,
           :recorded_at
      from unnest(:event_ids, :types, :data, :metadata)
           with ordinality as new (event_id, type, data, metadata, index)
     where :version = (select coalesce(max(version), 0) from events where stream = :stream)
     order by new.index
    returning position, version
    """
).bindparams(
    bindparam("stream", type_=Text),
    bindparam("version", type_=BigInteger),
    bindparam("event_ids", type_=ARRAY(Text)),
    bindparam("types", type_=ARRAY(Text)),
    bindparam("data", type_=ARRAY(JSONB)),
    bindparam("metadata", type_=ARRAY(JSONB)),
    bindparam("recorded_at", type_=DateTime(timezone=True)),
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def timestamp(at_ms: int) -> datetime:
    """Turn milliseconds since the epoch into a column value, exactly."""
    return _EPOCH + at_ms * _MILLISECOND


def stored_event(row: Row[Any]) -> StoredEvent:
    """Turn a row of ``events`` into the port's type."""
    return StoredEvent(
        position=row.position,
        stream=row.stream,
        version=row.version,
        event_id=row.event_id,
        type=row.type,
        data=row.data,
        metadata=row.metadata,
        recorded_at_ms=(row.recorded_at - _EPOCH) // _MILLISECOND,
    )
