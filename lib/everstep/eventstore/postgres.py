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

from sqlalchemy import func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from everstep.core.ports import Consumed, NewEvent, Projection, StoredEvent
from everstep.core.system import Clock
from everstep.eventstore import database, tables
from everstep.eventstore.memory import conflict, retried
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
                if consumed is not None and not await _mark_consumed(connection, consumed):
                    return await _known(connection, stream, events)
                await self._take_turns(connection)
                version = await _version(connection, stream)
                if version != expected_version:
                    known = await _known(connection, stream, events)
                    if known:
                        return known
                    raise conflict(stream, expected_version, version)
                return await self._insert(connection, stream, version, events)
        except IntegrityError as error:
            if not _is_ours(error):
                raise  # a projection's own constraint: a bug, not a race
            async with self.reading() as connection:
                known = await _known(connection, stream, events)
                if known:
                    return known
                version = await _version(connection, stream)
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

    async def _insert(
        self,
        connection: AsyncConnection,
        stream: str,
        version: int,
        events: Sequence[NewEvent],
    ) -> list[StoredEvent]:
        if not events:
            return []
        recorded_at = tables.timestamp(self._clock.now_ms())
        rows = [
            {
                "stream": stream,
                "version": version + index,
                "event_id": event.event_id,
                "type": event.type,
                "data": event.data,
                "metadata": event.metadata,
                "recorded_at": recorded_at,
            }
            for index, event in enumerate(events, start=1)
        ]
        statement = insert(tables.events).returning(tables.events, sort_by_parameter_order=True)
        stored = [tables.stored_event(row) for row in await connection.execute(statement, rows)]
        for event in stored:
            for projection in self._projections:
                await projection.apply(connection, event)
        return stored


def _is_ours(error: IntegrityError) -> bool:
    cause = error.orig.__cause__ if error.orig is not None else None
    return getattr(cause, "table_name", None) == tables.events.name


async def _version(connection: AsyncConnection, stream: str) -> int:
    query = select(func.max(tables.events.c.version)).where(tables.events.c.stream == stream)
    return (await connection.execute(query)).scalar_one_or_none() or 0


async def _known(
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


async def _mark_consumed(connection: AsyncConnection, consumed: Consumed) -> bool:
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
