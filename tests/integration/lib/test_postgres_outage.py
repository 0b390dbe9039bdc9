"""The event store while PostgreSQL is away, and after it has come back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg
import pytest
from tests.integration.lib.conftest import OwnServer
from tests.toy import AGGREGATE, Command, Cordon, Event, Host
from tests.waiting import until

from everstep.core.errors import Unavailable
from everstep.core.ports import NewEvent, StoredEvent
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.postgres import PostgresStore
from everstep.service.handler import Handler


def new(event_id: str) -> NewEvent:
    """An event to append."""
    return NewEvent(event_id=event_id, type="thing_happened.v1", data={})


async def test_absent_database_is_unavailable(own_postgres: OwnServer) -> None:
    """Server down, database missing: the same exception, naming where, without the password."""
    async with PostgresStore.open(own_postgres.url, clock=SystemClock()) as store:
        await store.append("s", 0, [new("a")])
        await own_postgres.stop()
        for call in (
            store.load("s"),
            store.append("s", 1, [new("b")]),
            store.read_all(after_position=0, limit=1),
            store.cursor("x"),
            store.advance_cursor("x", 1),
        ):
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+/toy") as caught:
                await call
            assert "everstep:p@" not in str(caught.value)
        with pytest.raises(Unavailable):
            async with PostgresStore.open(own_postgres.url, clock=SystemClock()):
                pass
        await own_postgres.start()
        assert [event.event_id for event in await store.append("s", 1, [new("b")])] == ["b"]
    with pytest.raises(Unavailable, match="does not exist"):
        async with PostgresStore.open(own_postgres.url + "x", clock=SystemClock()):
            pass


async def test_committed_events_survive_a_crash_of_the_server(own_postgres: OwnServer) -> None:
    """What append returned is there after SIGKILL, and positions go on growing."""
    async with PostgresStore.open(own_postgres.url, clock=SystemClock()) as store:
        stored = await store.append("s", 0, [new("a"), new("b")])
        await own_postgres.kill()
        await own_postgres.start()
        assert await store.load("s") == stored
        (later,) = await store.append("s", 2, [new("c")])
        assert later.position > stored[-1].position


class LosesTheAnswer(PostgresStore):
    """Commits, and then the connection breaks."""

    lose = 0

    async def append(self, *args: Any, **kwargs: Any) -> list[StoredEvent]:
        stored = await super().append(*args, **kwargs)
        if self.lose:
            self.lose -= 1
            raise Unavailable("connection lost")
        return stored


async def test_append_whose_answer_was_lost_takes_effect_once(database_url: str) -> None:
    """The handler appends the same ids again and is told what is stored."""
    async with LosesTheAnswer.open(database_url, clock=SystemClock()) as store:
        handler: Handler[Command, Host, Event] = Handler(AGGREGATE, store, RandomIds())
        store.lose = 1
        handled = await handler.handle(Cordon(host_id="a", times=2))
        assert (handled.version, handled.state.cordoned) == (2, 2)
        assert [event.version for event in await store.load("host-a")] == [1, 2]


class Hold:
    """A projection that stops in the middle of the transaction."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        if event.event_id == "held":
            self.reached.set()
            await self.open.wait()


async def test_writer_that_stops_in_the_middle_does_not_block_the_others_for_long(
    own_postgres: OwnServer,
) -> None:
    """A frozen process holds the append lock: the server takes it away."""
    hold = Hold()
    async with (
        PostgresStore.open(own_postgres.url, clock=SystemClock(), projections=[hold]) as frozen,
        PostgresStore.open(own_postgres.url, clock=SystemClock()) as store,
    ):
        stuck = asyncio.create_task(frozen.append("a", 0, [new("held")]))
        await hold.reached.wait()
        stored = await asyncio.wait_for(store.append("b", 0, [new("x")]), 30)
        assert len(stored) == 1
        hold.open.set()
        with pytest.raises(Unavailable):
            await stuck
        assert await store.streams() == ["b"]


async def test_broken_projection_is_not_taken_for_a_race(own_postgres: OwnServer) -> None:
    """Its unique violation is a bug to be seen, not a conflict to be tried again."""

    class Doubles:
        async def apply(self, transaction: Any, event: StoredEvent) -> None:
            for _ in range(2):
                await transaction.exec_driver_sql("insert into cursors values ('x', 1)")

    async with PostgresStore.open(
        own_postgres.url, clock=SystemClock(), projections=[Doubles()]
    ) as store:
        with pytest.raises(Exception, match="cursors_pkey") as caught:
            await store.append("s", 0, [new("a")])
        assert type(caught.value).__name__ == "IntegrityError"
        assert await store.load("s") == []


async def test_pool_is_never_exhausted_by_errors(own_postgres: OwnServer) -> None:
    """Connections come back to the pool whatever happens to their transaction."""
    async with PostgresStore.open(own_postgres.url, clock=SystemClock()) as store:
        connection = await asyncpg.connect(own_postgres.url)
        for _ in range(3):
            tries = [store.append("s", 7, [new(RandomIds().new_id("e"))]) for _ in range(30)]
            await asyncio.gather(*tries, return_exceptions=True)
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = 'toy' and pid <> pg_backend_pid()"
            )
        await connection.close()

        async def stored() -> list[object] | None:
            # A connection whose end has not been noticed yet is found out by its first use.
            with contextlib.suppress(Unavailable):
                return list(await store.append("s", 0, [new("a")]))
            return None

        assert len(await until(stored)) == 1
