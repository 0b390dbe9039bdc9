"""Readers of the PostgreSQL event store never miss an event that commits late.

The first two tests are one story told twice: without the append lock a reader loses an event for
ever, with it the order of positions is the order of commits.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.waiting import until

from everstep.core.ports import NewEvent, StoredEvent
from everstep.core.system import SystemClock
from everstep.eventstore import database
from everstep.eventstore.postgres import PostgresStore


class Gate:
    """A projection that holds one event's transaction open."""

    def __init__(self, held: str) -> None:
        self._held = held
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        if event.event_id == self._held:
            self.reached.set()
            await self.open.wait()


async def no_turns(connection: AsyncConnection) -> None:
    """What an ordinary event table does."""


def new(event_id: str) -> NewEvent:
    """An event to append."""
    return NewEvent(event_id=event_id, type="thing_happened.v1", data={})


async def read_on(store: PostgresStore, seen: list[StoredEvent]) -> None:
    """Read what comes after the last position seen, as every consumer does."""
    after = seen[-1].position if seen else 0
    seen += await store.read_all(after_position=after, limit=100)


async def test_late_commit_is_lost_without_the_append_lock(database_url: str) -> None:
    """The fault that the lock is there for: position 1 commits after 2 was read."""
    gate = Gate("slow")
    seen: list[StoredEvent] = []
    async with PostgresStore.open(database_url, clock=SystemClock()) as reader:
        engine = database.create_engine(database_url)
        writer = PostgresStore(engine, clock=SystemClock(), projections=[gate], take_turns=no_turns)
        slow = asyncio.create_task(writer.append("a", 0, [new("slow")]))
        await gate.reached.wait()
        await writer.append("b", 0, [new("fast")])
        await read_on(reader, seen)
        gate.open.set()
        await slow
        await read_on(reader, seen)
        await engine.dispose()
    assert [event.event_id for event in seen] == ["fast"]


async def test_late_commit_is_waited_for_with_the_append_lock(database_url: str) -> None:
    """The second append waits until the first is committed and seen."""
    gate = Gate("slow")
    seen: list[StoredEvent] = []
    async with PostgresStore.open(database_url, clock=SystemClock(), projections=[gate]) as store:
        slow = asyncio.create_task(store.append("a", 0, [new("slow")]))
        await gate.reached.wait()
        fast = asyncio.create_task(store.append("b", 0, [new("fast")]))
        await until(lambda: somebody_waits(store), what="the second append queues for the lock")
        await read_on(store, seen)
        assert seen == []
        gate.open.set()
        await asyncio.gather(slow, fast)
        await read_on(store, seen)
    assert [event.event_id for event in seen] == ["slow", "fast"]


async def somebody_waits(store: PostgresStore) -> bool:
    """Whether a session queues for an advisory lock."""
    query = text("select count(*) from pg_locks where locktype = 'advisory' and not granted")
    async with store.reading() as connection:
        return bool((await connection.execute(query)).scalar_one())


@pytest.mark.parametrize("writers", [12])
async def test_concurrent_writers_are_read_exactly_once_in_order(
    database_url: str, writers: int
) -> None:
    """Two pools write to many streams with commits of varied length while one reader follows."""
    events_each = 40

    class Dawdle:
        """Makes some transactions long."""

        async def apply(self, transaction: AsyncConnection, event: StoredEvent) -> None:
            await transaction.execute(text(f"select pg_sleep({event.position % 7 * 0.0005})"))

    seen: list[StoredEvent] = []
    total = writers * events_each
    async with (
        PostgresStore.open(database_url, clock=SystemClock(), projections=[Dawdle()]) as first,
        PostgresStore.open(database_url, clock=SystemClock(), projections=[Dawdle()]) as second,
        PostgresStore.open(database_url, clock=SystemClock()) as reader,
    ):

        async def write(store: PostgresStore, stream: str) -> None:
            for version in range(events_each):
                await store.append(stream, version, [new(f"{stream}-{version}")])

        async def read() -> None:
            while len(seen) < total:
                await read_on(reader, seen)

        await asyncio.gather(
            read(), *(write((first, second)[n % 2], f"s{n}") for n in range(writers))
        )
        assert await reader.read_all(after_position=0, limit=total + 1) == seen
    positions = [event.position for event in seen]
    assert positions == sorted(set(positions))
    for n in range(writers):
        versions = [event.version for event in seen if event.stream == f"s{n}"]
        assert versions == list(range(1, events_each + 1))
