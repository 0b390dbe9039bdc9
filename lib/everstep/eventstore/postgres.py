"""The event store in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from everstep.core.ports import Consumed, NewEvent, Projection, StoredEvent
from everstep.core.system import Clock


class PostgresStore:
    """Implements ``core.ports.EventStore`` on one database."""

    def __init__(
        self, engine: AsyncEngine, *, clock: Clock, projections: Sequence[Projection] = ()
    ) -> None:
        self.engine = engine
        self._clock = clock
        self._projections = tuple(projections)

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
        """
        raise NotImplementedError
        yield

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection for queries of the projections' tables. Raises Unavailable."""
        raise NotImplementedError
        yield

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return the stream's events with a version above ``after_version``, in order."""
        raise NotImplementedError

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append as ``core.ports.EventStore.append`` says."""
        raise NotImplementedError

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return committed events in position order."""
        raise NotImplementedError

    async def streams(self, *, prefix: str = "") -> list[str]:
        """Return the names of existing streams, sorted."""
        raise NotImplementedError

    async def consumed_position(self, consumer: str, source: str) -> int:
        """Return the last handled position of ``source`` events, 0 at first."""
        raise NotImplementedError

    async def cursor(self, name: str) -> int:
        """Return a named reader's position, 0 at first."""
        raise NotImplementedError

    async def advance_cursor(self, name: str, position: int) -> None:
        """Move a named cursor forward; never back."""
        raise NotImplementedError
