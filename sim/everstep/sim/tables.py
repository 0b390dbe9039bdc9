"""The monitor's read tables, kept by its own SQL, in a SQLite database in memory.

What the API answers from PostgreSQL is answered here by the same statements: the projection
writes the same rows, ``measurements.flush`` the same step metrics, and ``queries`` reads them.
SQLite takes these statements as they are, but for two functions that it calls otherwise. Rejected:
folding the events into the ledger's arguments here: then nobody would look at the queries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from sqlalchemy import Executable, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.errors import Unavailable
from everstep.core.ports import StoredEvent
from everstep.monitor.projections import METADATA, MonitorProjection
from everstep.sim.process import Database


class Tables:
    """Implements ``core.ports.Projection``; survives every process of the monitor."""

    def __init__(self) -> None:
        self._projection = MonitorProjection()
        self._sync = create_engine("sqlite://").connect()
        database: Any = self._sync.connection.dbapi_connection
        database.create_function("greatest", 2, max)
        database.create_function("least", 2, min)
        for table in METADATA.sorted_tables:
            columns = ", ".join(column.name for column in table.columns)
            key = ", ".join(column.name for column in table.primary_key)
            self._sync.exec_driver_sql(
                f"create table {table.name} ({columns}, primary key ({key}))"
            )

    @property
    def connection(self) -> AsyncConnection:
        """Return what the monitor's functions read and write through."""
        return cast("AsyncConnection", self)

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """Execute a statement, as a connection does."""
        return self._sync.execute(statement, parameters)

    async def apply(self, transaction: object, event: StoredEvent) -> None:
        """Update the rows that an event is about; an append here is never rolled back."""
        del transaction
        await self._projection.apply(self.connection, event)

    @asynccontextmanager
    async def writing(self, database: Database) -> AsyncIterator[AsyncConnection]:
        """Open a transaction of the monitor's process. Raises Unavailable."""
        if not database.up:
            raise Unavailable("the database is away")
        yield self.connection
