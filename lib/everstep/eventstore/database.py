"""Connections to PostgreSQL, with its outages told as ``Unavailable``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec
from sqlalchemy import event
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from everstep.core.errors import Unavailable

CONNECT_TIMEOUT_S: Final = 5.0  # chosen: a database in the same site answers in milliseconds
POOL_SIZE: Final = 10  # of each service; all four fit the default max_connections of 100 twice
POOL_WAIT_S: Final = 10.0  # a request that waits longer for a connection had better be retried
# A process that is stopped in the middle of an append holds the append lock: the server ends its
# session after this long, and the others go on. Appends take milliseconds.
IDLE_IN_TRANSACTION_MS: Final = 5_000
LOCK_WAIT_MS: Final = 10_000  # longer than the above, so that waiting for such a process succeeds

_SESSION: Final = {
    "application_name": "everstep",
    "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
    "lock_timeout": str(LOCK_WAIT_MS),
}
# class 08: connection; 53: resources; 55P03: lock wait; 57: operator intervention;
# 25P03: the session was ended because it idled in a transaction; 40: deadlock, serialization
_OUTAGE_CODES: Final = ("08", "53", "55P03", "57", "25P03", "40")


def plain_url(url: str) -> str:
    """Return the URL as asyncpg takes it: ``postgresql://...``."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql{separator}{rest}" if scheme.startswith("postgres") else url


def create_engine(url: str) -> AsyncEngine:
    """Make a pool that never lends a connection that the server has closed.

    Rejected: SQLAlchemy's pre-ping, a round trip for each loan. A server that restarts closes its
    connections, which the driver knows without asking; one that vanishes is ``Unavailable`` once.
    """
    engine = create_async_engine(
        plain_url(url).replace("postgresql://", "postgresql+asyncpg://", 1),
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
        connect_args={"timeout": CONNECT_TIMEOUT_S, "server_settings": _SESSION},
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


def _refuse_closed(dbapi_connection: Any, _record: Any, _proxy: Any) -> None:
    if dbapi_connection.driver_connection.is_closed():
        raise DisconnectionError  # the pool opens another one instead


@asynccontextmanager
async def connect_once(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open one connection outside the pool. Raises Unavailable."""
    async with outages(url):
        connection = await asyncpg.connect(plain_url(url), timeout=CONNECT_TIMEOUT_S)
        try:
            yield connection
        finally:
            await connection.close(timeout=CONNECT_TIMEOUT_S)


@asynccontextmanager
async def connecting(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection for reading: each statement by itself, in one round trip.

    Raises:
        Unavailable: the database does not answer.
    """
    async with outages(str(engine.url)), engine.connect() as connection:
        yield await connection.execution_options(isolation_level="AUTOCOMMIT")


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Lend a connection in a transaction that commits at the end. Raises Unavailable."""
    async with outages(str(engine.url)), engine.begin() as connection:
        yield connection


@asynccontextmanager
async def outages(url: str) -> AsyncIterator[None]:
    """Tell the database's outages, and only those, as ``Unavailable``."""
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        if error.connection_invalidated or _is_outage(error, error.orig):
            raise Unavailable(f"database at {_where(url)}: {error.orig}") from error
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if _is_outage(error, error) or isinstance(error, asyncpg.InvalidCatalogNameError):
            raise Unavailable(f"database at {_where(url)}: {error}") from error
        raise
    except (OSError, TimeoutError, PoolTimeout) as error:
        raise Unavailable(f"database at {_where(url)}: {error or type(error).__name__}") from error


def _is_outage(error: BaseException, cause: BaseException | None) -> bool:
    code = getattr(cause, "sqlstate", None)
    if code is not None:
        return str(code).startswith(_OUTAGE_CODES)
    return isinstance(error, InterfaceError | OperationalError | asyncpg.InterfaceError)


def _where(url: str) -> str:
    return plain_url(url).rpartition("@")[2]
