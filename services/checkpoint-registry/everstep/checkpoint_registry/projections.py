"""The read tables of checkpoints, kept in the transaction that appends; see ``migrations``."""

from __future__ import annotations

import json
from typing import Any, Final, assert_never

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    DateTime,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.checkpoint_registry import events as e
from everstep.checkpoint_registry.catalog import CheckpointId
from everstep.checkpoint_registry.codec import CHECKPOINT_EVENTS
from everstep.core.ports import StoredEvent
from everstep.eventstore.codec import storable

METADATA: Final = MetaData()

CHECKPOINTS: Final = Table(
    "checkpoints",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("world_size", Integer),
    Column("shards_stored", Integer),
    Column("shards", JSONB),
    Column("bytes", BigInteger),
    Column("data_state", JSONB),
    Column("rng_state", JSONB),
    Column("complete", Boolean),
    Column("manifest_uri", Text),
    Column("deleted_why", Text),
    Column("purged", Boolean),
    Column("created_at", DateTime(timezone=True)),
    Column("completed_at_ms", BigInteger),
    Column("state", Text),
)

SHARDS: Final = Table(
    "shards",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("uri", Text),
    Column("bytes", BigInteger),
    Column("checksum", Text),
)

_INSERT_SHARDS: Final = text("""
    insert into shards (job_id, step, generation, rank, uri, bytes, checksum)
    select :job_id, :step, :generation, s.rank, s.uri, s.bytes, s.checksum
    from jsonb_to_recordset(:shards) as s(rank int, uri text, bytes bigint, checksum text)
""").bindparams(bindparam("shards", type_=JSONB))


class CheckpointsProjection:
    """Implements ``core.ports.Projection`` on an SQLAlchemy connection."""

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        """Bring the tables to where the event leads; a job's history has none."""
        if not CHECKPOINT_EVENTS.knows(event.type):
            return
        connection: AsyncConnection = transaction
        decided = CHECKPOINT_EVENTS.decode(event.type, event.data)
        row = update(CHECKPOINTS).where(is_one(CHECKPOINTS, decided))
        match decided:
            case e.ShardsStored():
                await _stored(connection, decided)
            case e.ShardsRefused():
                gone = delete(SHARDS).where(is_one(SHARDS, decided), SHARDS.c.uri == decided.uri)
                found = await connection.execute(gone)
                left = CHECKPOINTS.c.shards_stored - found.rowcount
                await connection.execute(row.values(shards_stored=left))
            case e.CheckpointCompleted():
                await _completed(connection, decided)
            case e.CheckpointDeleted():
                await connection.execute(delete(SHARDS).where(is_one(SHARDS, decided)))
                await connection.execute(row.values(deleted_why=decided.why, shards=[]))
            case e.CheckpointPurged():
                await connection.execute(row.values(purged=True))
            case _:
                assert_never(decided)


def is_one(table: Table, which: CheckpointId | e.CheckpointEvent) -> ColumnElement[bool]:
    """Return the condition that a row is of this checkpoint."""
    c = table.c
    return (c.job_id == which.job_id) & (c.step == which.step) & (c.generation == which.generation)


async def _stored(connection: AsyncConnection, event: e.ShardsStored) -> None:
    at = func.to_timestamp(event.at_ms / 1000.0)
    row = upsert(CHECKPOINTS).values(
        job_id=event.job_id,
        step=event.step,
        generation=event.generation,
        world_size=event.world_size,
        shards_stored=len(event.shards),
        data_state=_json(event.data_state),
        created_at=at,
    )
    more = {
        "shards_stored": CHECKPOINTS.c.shards_stored + len(event.shards),
        "data_state": func.coalesce(CHECKPOINTS.c.data_state, row.excluded.data_state),
        "created_at": func.greatest(CHECKPOINTS.c.created_at, row.excluded.created_at),
    }
    keys = ["job_id", "step", "generation"]
    await connection.execute(row.on_conflict_do_update(index_elements=keys, set_=more))
    values = {
        "job_id": event.job_id,
        "step": event.step,
        "generation": event.generation,
        "shards": msgspec.to_builtins(event.shards),
    }
    await connection.execute(_INSERT_SHARDS, values)


async def _completed(connection: AsyncConnection, event: e.CheckpointCompleted) -> None:
    columns = ("rank", "uri", "bytes", "checksum")
    one = func.jsonb_build_object(*(part for name in columns for part in (name, SHARDS.c[name])))
    whole = select(func.jsonb_agg(one.op("order by")(SHARDS.c.rank))).where(is_one(SHARDS, event))
    values = {
        "complete": True,
        "manifest_uri": event.manifest_uri,
        "bytes": event.bytes,
        "completed_at_ms": event.at_ms,
        "shards": whole.scalar_subquery(),
    }
    await connection.execute(update(CHECKPOINTS).where(is_one(CHECKPOINTS, event)).values(**values))
    await connection.execute(delete(SHARDS).where(is_one(SHARDS, event)))


def _json(data_state: str) -> Any:
    """Return the data state as JSON, or as the text that it is; null when there is none."""
    try:
        return storable(json.loads(data_state)) if data_state else None
    except json.JSONDecodeError:
        return data_state
