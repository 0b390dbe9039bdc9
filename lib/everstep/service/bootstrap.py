"""Opens what a service needs, in order, and closes it again: the generic part of ``__main__``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from google.protobuf.message import Message as ProtoMessage

from everstep.bus.nats import NatsBus
from everstep.core.ports import Consumed, Projection
from everstep.core.system import Clock, IdSource
from everstep.eventstore.codec import EventCodec
from everstep.eventstore.postgres import PostgresStore
from everstep.service.handler import Aggregate, Handler
from everstep.service.settings import ServiceSettings
from everstep.wire.v1.envelope_pb2 import EventEnvelope

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")
Q = TypeVar("Q", bound=ProtoMessage)


class ServiceShell:
    """A service's connections and loops.

    ``app`` is the FastAPI application to add routes to; health, readiness and metrics are there.
    """

    name: str
    store: PostgresStore
    bus: NatsBus
    clock: Clock
    ids: IdSource
    app: FastAPI
    settings: ServiceSettings

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
        """
        raise NotImplementedError
        yield

    def handler(self, aggregate: Aggregate[C, S, E]) -> Handler[C, S, E]:
        """Return a handler that wakes the outbox and all wakers after each commit."""
        raise NotImplementedError

    async def serve_command(
        self, name: str, request: type[Q], reply: Callable[[Q], Awaitable[ProtoMessage]]
    ) -> None:
        """Answer ``everstep.v1.cmd.<service>.<name>``, one instance of the service each."""
        raise NotImplementedError

    async def consume_events(
        self,
        source_service: str,
        on_event: Callable[[EventEnvelope, Consumed], Awaitable[None]],
    ) -> None:
        """Hand over another service's events in order, at least once.

        Pass the ``Consumed`` on to ``Handler.handle`` so that it commits with the effect; what the
        store says is handled already is skipped.
        """
        raise NotImplementedError

    def on_commit(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` (e.g. an event's ``set``) after every commit of any handler."""
        raise NotImplementedError

    def spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a loop under supervision: logged, backed off and restarted when it raises."""
        raise NotImplementedError

    async def run(self) -> None:
        """Serve HTTP until SIGTERM or SIGINT, then close in order."""
        raise NotImplementedError
