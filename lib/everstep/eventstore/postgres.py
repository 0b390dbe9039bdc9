"""The event store in PostgreSQL.

**Positions are commit order.** A sequence is not: a transaction may take position 7 and commit
after another has committed 8; a reader that has seen 8 would never ask for 7 again. So every append
takes a transaction-level advisory lock right before it takes positions, and PostgreSQL gives the
lock up after the commit has become visible: positions are taken and shown in the same order, and
readers need no care at all. The price is that a service's appends (a few a second, milliseconds
each) take turns. Rejected: hiding events newer than ``pg_snapshot_xmin`` from readers, because one
long transaction anywhere in the server (a backup, a forgotten session) would stall all of them;
re-reading gaps for a while, because no while is long enough.

**Retries are safe.** After a lost connection nobody knows whether the commit happened. Appending
the same event ids again returns what is stored.

**Consumers handle once.** The handled position of a foreign event is written in the transaction of
its effect, and its row is locked first: of two instances that handle the same event the second
waits for the first, and then does nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from everstep.core.ports import Consumed, NewEvent, Projection, StoredEvent
from everstep.core.system import Clock
from everstep.eventstore import database, statements, tables
from everstep.eventstore.memory import conflict
from everstep.eventstore.migrations import migrate

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_APPEND_LOCK: Final = 0x65_76_65_72_02  # "ever" and a number, as in migrations.py


async def one_at_a_time(connection: AsyncConnection) -> None:
    """Wait for the database's other appends to be committed and seen."""
    await connection.execute(select(func.pg_advisory_xact_lock(_APPEND_LOCK)))


class PostgresStore:
    """Implements ``core.ports.EventStore`` on one database."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        clock: Clock,
        projections: Sequence[Projection] = (),
        take_turns: Callable[[AsyncConnection], Awaitable[None]] = one_at_a_time,
    ) -> None:
        """Use ``open`` unless the tables exist and the pool is yours."""
        self.engine = engine
        self._clock = clock
        self._projections = tuple(projections)
        self._take_turns = take_turns

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        *,
        clock: Clock,
        projections: Sequence[Projection] = (),
        migrations: Sequence[Path] = (),
    ) -> AsyncIterator[PostgresStore]:
        """Connect, bring the tables up to date, and dispose of the pool at the end.

        Args:
            url: ``postgresql://user:password@host:port/database``.
            clock: stamps ``recorded_at``.
            projections: applied in the transaction of every append.
            migrations: directories of ``NNNN_name.sql`` files, beside the store's own.

        Raises:
            Unavailable: the database does not answer.
            CorruptData: its migrations are not ours.
        """
        async with database.connect_once(url) as connection:
            await migrate(connection, (MIGRATIONS, *migrations))
        engine = database.create_engine(url)
        try:
            yield cls(engine, clock=clock, projections=projections)
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for queries of the projections' tables. Raises Unavailable."""
        async with database.connecting(self.engine) as connection:
            yield connection

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return the stream's events with a version above ``after_version``, in order."""
        query = (
            select(tables.events)
            .where(tables.events.c.stream == stream, tables.events.c.version > after_version)
            .order_by(tables.events.c.version)
        )
        async with self.reading() as connection:
            return [tables.stored_event(row) for row in await connection.execute(query)]

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append as ``core.ports.EventStore.append`` says.

        Returns:
            The stored events; those of the earlier call if this is a retry; nothing if
            ``consumed`` was handled before.
        """
        try:
            async with database.transaction(self.engine) as connection:
                if consumed is not None and not await statements.mark_consumed(
                    connection, consumed
                ):
                    return await statements.known_events(connection, stream, events)
                await self._take_turns(connection)
                stored = await statements.insert(
                    connection, stream, expected_version, events, now_ms=self._clock.now_ms()
                )
                if not stored:
                    return await statements.explain(connection, stream, expected_version, events)
                for event in stored:
                    for projection in self._projections:
                        await projection.apply(connection, event)
                return stored
        except IntegrityError as error:
            if not statements.is_ours(error):
                raise  # a projection's own constraint: a bug, not a race
            async with self.reading() as connection:
                known = await statements.known_events(connection, stream, events)
                if known:
                    return known
                version = await statements.current_version(connection, stream)
            raise conflict(stream, expected_version, version) from error

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return committed events in position order."""
        query = (
            select(tables.events)
            .where(tables.events.c.position > after_position)
            .order_by(tables.events.c.position)
            .limit(limit)
        )
        async with self.reading() as connection:
            return [tables.stored_event(row) for row in await connection.execute(query)]

    async def streams(self, *, prefix: str = "") -> list[str]:
        """Return the names of existing streams, sorted."""
        query = select(tables.events.c.stream).where(
            tables.events.c.version == 1, func.starts_with(tables.events.c.stream, prefix)
        )
        async with self.reading() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def consumed_position(self, consumer: str, source: str) -> int:
        """Return the last handled position of ``source`` events, 0 at first."""
        query = select(tables.consumed.c.position).where(
            tables.consumed.c.consumer == consumer, tables.consumed.c.source == source
        )
        async with self.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or 0

    async def cursor(self, name: str) -> int:
        """Return a named reader's position, 0 at first."""
        query = select(tables.cursors.c.position).where(tables.cursors.c.name == name)
        async with self.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or 0

    async def advance_cursor(self, name: str, position: int) -> None:
        """Move a named cursor forward; never back."""
        row = upsert(tables.cursors).values(name=name, position=position)
        forward = row.on_conflict_do_update(
            index_elements=["name"],
            set_={"position": func.greatest(tables.cursors.c.position, row.excluded.position)},
        )
        async with database.transaction(self.engine) as connection:
            await connection.execute(forward)
