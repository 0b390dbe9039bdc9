"""Reads the registry's tables: for its process managers, and for the API."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.checkpoint_registry import events as e
from everstep.checkpoint_registry.catalog import CheckpointId
from everstep.checkpoint_registry.commands import CompleteFacts, Known
from everstep.checkpoint_registry.projections import CHECKPOINTS, SHARDS, is_one
from everstep.eventstore.postgres import PostgresStore

# Shards of complete checkpoints are read for every restore plan and never change: a few MB each at
# 16,384 ranks. Chosen: the checkpoints that a handful of jobs keep.
CACHED_MAX: Final = 16


class PostgresCatalog:
    """Implements ``Catalog`` on the projection's tables."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._shards: OrderedDict[CheckpointId, tuple[e.Shard, ...]] = OrderedDict()

    async def unfinished(self) -> list[CheckpointId]:
        """Return those to be completed or purged, sorted."""
        c = CHECKPOINTS.c
        query = select(c.job_id, c.step, c.generation).where(
            ~c.purged, c.state.in_(("stored", "deleted"))
        )
        async with self._store.reading() as connection:
            rows = await connection.execute(query)
            return sorted(CheckpointId(**row) for row in rows.mappings())

    async def known(self, job_id: str) -> list[Known]:
        """Return the job's checkpoints that are not deleted."""
        c = CHECKPOINTS.c
        query = select(
            c.step,
            c.generation,
            c.complete,
            func.coalesce(c.completed_at_ms, 0).label("completed_ms"),
            c.shards_stored.label("stored"),
            c.world_size,
        ).where(~c.purged, c.job_id == job_id, c.deleted_why == "")
        async with self._store.reading() as connection:
            return [Known(**row) for row in (await connection.execute(query)).mappings()]

    async def complete(self, job_id: str) -> tuple[CompleteFacts, ...]:
        """Return the job's complete checkpoints; shards that were read before come from memory."""
        known = [known for known in await self.known(job_id) if known.complete]
        facts = []
        for checkpoint in sorted(known, key=lambda k: (k.step, k.generation)):
            key = CheckpointId(
                job_id=job_id, step=checkpoint.step, generation=checkpoint.generation
            )
            shards = await self._shards_of(key)
            facts.append(CompleteFacts(step=key.step, generation=key.generation, shards=shards))
        return tuple(facts)

    async def job_ids(self) -> list[str]:
        """Return the jobs that have a checkpoint which is not deleted."""
        c = CHECKPOINTS.c
        query = select(c.job_id).where(~c.purged, c.deleted_why == "").distinct()
        async with self._store.reading() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def _shards_of(self, key: CheckpointId) -> tuple[e.Shard, ...]:
        shards = self._shards.get(key)
        if shards is None:
            query = select(CHECKPOINTS.c.shards).where(is_one(CHECKPOINTS, key))
            async with self._store.reading() as connection:
                found = (await connection.execute(query)).scalar_one()
            shards = msgspec.convert(found, tuple[e.Shard, ...])
            self._shards[key] = shards
        self._shards.move_to_end(key)
        while len(self._shards) > CACHED_MAX:
            self._shards.popitem(last=False)
        return shards


async def listed(
    connection: AsyncConnection, job_id: str | None, *, with_deleted: bool
) -> list[dict[str, Any]]:
    """Return checkpoints without their shards, by job, newest step first."""
    c = CHECKPOINTS.c
    query = select(*(column for column in c if column.name != "shards")).order_by(
        c.job_id, c.step.desc(), c.generation.desc()
    )
    if job_id is not None:
        query = query.where(c.job_id == job_id)
    if not with_deleted:
        query = query.where(~c.purged, c.deleted_why == "")
    return [_row(dict(row)) for row in (await connection.execute(query)).mappings()]


async def one(
    connection: AsyncConnection, job_id: str, step: int, generation: int | None
) -> dict[str, Any] | None:
    """Return a step's checkpoint with the shards that are stored; the newest generation's."""
    c = CHECKPOINTS.c
    query = (
        select(CHECKPOINTS)
        .where(c.job_id == job_id, c.step == step)
        .order_by(c.generation.desc())
        .limit(1)
    )
    if generation is not None:
        query = query.where(c.generation == generation)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    found = _row(dict(row))
    if not found["shards"]:
        names = ("rank", "uri", "bytes", "checksum")
        key = CheckpointId(job_id=job_id, step=step, generation=found["generation"])
        stored = select(*(SHARDS.c[name] for name in names)).where(is_one(SHARDS, key))
        rows = (await connection.execute(stored.order_by(SHARDS.c.rank))).mappings()
        found["shards"] = [dict(shard) for shard in rows]
    return found


async def is_known(connection: AsyncConnection, job_id: str) -> bool:
    """Say whether there ever was a checkpoint of the job, deleted or not, whole or not."""
    query = select(CHECKPOINTS.c.job_id).where(CHECKPOINTS.c.job_id == job_id).limit(1)
    return (await connection.execute(query)).first() is not None


async def newest_generation(connection: AsyncConnection, job_id: str, step: int) -> int | None:
    """Return the newest generation that has a checkpoint of a step, deleted or not."""
    c = CHECKPOINTS.c
    query = select(func.max(c.generation)).where(c.job_id == job_id, c.step == step)
    newest: int | None = (await connection.execute(query)).scalar()
    return newest


def _row(row: dict[str, Any]) -> dict[str, Any]:
    row["created_at_ms"] = int(row.pop("created_at").timestamp() * 1000)
    return row
