"""Opens what a service needs, in order, and closes it again: the generic part of ``__main__``.

HTTP comes first, so that a service whose database or bus is not up yet can say so on ``/readyz``;
then it waits for both, however long that takes. Whether they are up later on is nobody's business
at start: every use of them reports its own ``Unavailable``.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from sqlalchemy import text

from everstep.bus.durable import DurableConsumer
from everstep.bus.nats import NatsBus
from everstep.core.errors import Unavailable
from everstep.core.ports import Consumed, Projection
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.codec import EventCodec
from everstep.eventstore.postgres import PostgresStore
from everstep.service.http import create_app, serving
from everstep.service.logging import configure
from everstep.service.settings import ServiceSettings
from everstep.service.shell import Shell
from everstep.service.telemetry import tracing
from everstep.wire.v1.envelope_pb2 import EventEnvelope

DATABASE_PAUSE_S: Final = 0.25  # between attempts at start-up; it may be starting right now

_log = logging.getLogger(__name__)


class ServiceShell(Shell):
    """A service's connections and loops.

    ``app`` is the FastAPI application to add routes to; health, readiness and metrics are there.
    """

    store: PostgresStore
    bus: NatsBus

    def __init__(self, name: str, settings: ServiceSettings) -> None:
        """Use ``open``."""
        super().__init__(name, SystemClock(), RandomIds())
        self.settings = settings
        self.app: FastAPI = create_app(name, self.health, self.metrics)
        self.http_port = 0
        self._http = AsyncExitStack()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        name: str,
        settings: ServiceSettings,
        *,
        codecs: Sequence[EventCodec[Any]],
        migrations: Path,
        projections: Sequence[Projection] = (),
    ) -> AsyncIterator[ServiceShell]:
        """Wait for the database and the bus, migrate, and start the outbox.

        Args:
            name: as in subjects, e.g. ``host_inventory``.
            settings: read once by ``__main__``.
            codecs: of every aggregate; stored events are published under their current version.
            migrations: the service's directory of SQL files.
            projections: applied in the transaction of every append.

        Raises:
            CorruptData: the database is not this version's.
            Unavailable: the HTTP address is taken.
        """
        configure(service=name, level=settings.log_level, style=settings.log_format)
        shell = cls(name, settings)
        async with AsyncExitStack() as stack:
            stack.enter_context(tracing(name))
            stack.push_async_exit(shell._http)
            shell.http_port = await shell._http.enter_async_context(
                serving(shell.app, host=settings.http_host, port=settings.http_port)
            )
            _log.info("%s serves HTTP on %s:%d", name, settings.http_host, shell.http_port)
            shell.bus = await stack.enter_async_context(
                NatsBus.open(settings.nats_url.get_secret_value(), name=name)
            )
            shell.health.check("bus", shell._bus_trouble)
            shell.store = await shell._open_store(stack, migrations, projections)
            shell.health.check("database", shell._database_trouble)
            await shell.bus.wait_connected()  # says itself why it is not, if it is not
            stack.push_async_callback(shell._supervisor.close)
            shell.start_outbox(codecs)
            yield shell

    async def consume_events(
        self,
        source_service: str,
        on_event: Callable[[EventEnvelope, Consumed], Awaitable[None]],
    ) -> DurableConsumer:
        """Hand over as ``Shell`` does, and measure how far behind that is."""
        running = await super().consume_events(source_service, on_event)
        assert isinstance(running, DurableConsumer)
        self.metrics.consumer_lag.labels(source_service).set_function(lambda: running.pending)
        return running

    async def run(self) -> None:
        """Serve HTTP until SIGTERM or SIGINT, then let requests in work finish."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self.app.openapi_schema = None  # routes were added since somebody may have asked
        self.health.phase("running")
        _log.info("%s is ready", self.name)
        try:
            await stop.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            self.health.phase("stopping")
            _log.info("%s stops", self.name)
            await self._http.aclose()

    async def _open_store(
        self, stack: AsyncExitStack, migrations: Path, projections: Sequence[Projection]
    ) -> PostgresStore:
        trouble = ""
        while True:
            try:
                store = await stack.enter_async_context(
                    PostgresStore.open(
                        self.settings.database_url.get_secret_value(),
                        clock=self.clock,
                        projections=projections,
                        migrations=(migrations,),
                    )
                )
            except Unavailable as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("waiting for the database: %s", trouble)
                    self.health.trouble("database", trouble)
                await asyncio.sleep(DATABASE_PAUSE_S)
            else:
                self.health.trouble("database", "")
                return store

    async def _bus_trouble(self) -> str:
        return "" if self.bus.connected else "NATS is not connected"

    async def _database_trouble(self) -> str:
        async with self.store.reading() as connection:
            await connection.execute(text("select 1"))
        return ""
