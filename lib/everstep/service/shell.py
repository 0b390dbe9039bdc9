"""What a service is wired onto: its store, its bus, its loops, and nothing of where they come from.

``bootstrap`` makes one of PostgreSQL, NATS and HTTP; the simulator makes one of the in-memory
adapters. The wiring of a service takes a ``Shell``, so that both run the same code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from everstep.core.errors import InvalidInput
from everstep.core.ports import Bus, Consumed, EventStore, Message, Subscription
from everstep.core.system import Clock, IdSource
from everstep.eventstore.codec import EventCodec
from everstep.eventstore.outbox import Outbox, envelopes
from everstep.service.commands import command_subject
from everstep.service.consumers import EventConsumer
from everstep.service.handler import Aggregate, Handler
from everstep.service.health import Health
from everstep.service.metrics import Metrics
from everstep.service.observed import ObservedHandler
from everstep.service.supervised import Supervisor
from everstep.wire.v1.envelope_pb2 import EventEnvelope

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")
Q = TypeVar("Q", bound=ProtoMessage)


class Shell:
    """A service's connections and loops; ``store`` and ``bus`` are set by whoever opens it."""

    store: EventStore
    bus: Bus

    def __init__(self, name: str, clock: Clock, ids: IdSource) -> None:
        """Use ``name`` as in subjects, e.g. ``host_inventory``."""
        self.name = name
        self.clock = clock
        self.ids = ids
        self.health = Health()
        self.metrics = Metrics()
        self._supervisor = Supervisor(self.health)
        self._wakers: list[Callable[[], None]] = []

    def handler(self, aggregate: Aggregate[C, S, E]) -> Handler[C, S, E]:
        """Return a handler that wakes the outbox and all wakers after each commit."""
        return ObservedHandler(
            aggregate,
            self.store,
            self.ids,
            metrics=self.metrics,
            clock=self.clock,
            on_commit=(self._wake_all,),
        )

    async def serve_command(
        self, name: str, request: type[Q], reply: Callable[[Q], Awaitable[ProtoMessage]]
    ) -> None:
        """Answer ``everstep.v1.cmd.<service>.<name>``, one instance of the service each.

        What ``reply`` raises is told to the requester at once; a refusal is an answer instead.
        """

        async def answer(message: Message) -> bytes:
            try:
                command = request.FromString(message.data)
                return (await reply(command)).SerializeToString()
            except (DecodeError, msgspec.ValidationError) as error:
                raise InvalidInput(f"{message.subject}: {error}") from error

        await self.bus.serve(command_subject(self.name, name), answer, queue=self.name)

    async def consume_events(
        self,
        source_service: str,
        on_event: Callable[[EventEnvelope, Consumed], Awaitable[None]],
    ) -> Subscription:
        """Hand over another service's events in order, at least once.

        Pass the ``Consumed`` on to ``Handler.handle`` so that it commits with the effect; what the
        store says is handled already is skipped.
        """
        consumer = EventConsumer(
            self.store,
            on_event,
            consumer=self.name,
            source=source_service,
            health=self.health,
            metrics=self.metrics,
        )
        return await self.bus.consume(
            f"everstep.v1.event.{source_service}.>",
            consumer.receive,
            durable=f"{self.name}-{source_service}",
        )

    def on_commit(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` (e.g. an event's ``set``) after every commit of any handler."""
        self._wakers.append(waker)

    def spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a loop under supervision: logged, backed off and restarted when it raises."""
        self._supervisor.spawn(name, work)

    def start_outbox(self, codecs: Sequence[EventCodec[Any]]) -> None:
        """Publish what is committed; events are published under their current version."""
        outbox = Outbox(
            self.store,
            self.bus,
            service=self.name,
            to_envelope=envelopes(self.name, codecs),
            clock=self.clock,
        )
        self.on_commit(outbox.wake)
        self.metrics.outbox_lag.set_function(lambda: outbox.lag_ms / 1000)
        self.metrics.outbox_set_aside.set_function(lambda: outbox.set_aside)

        async def trouble() -> str:
            return outbox.trouble

        self.health.check("outbox", trouble)
        self.spawn("outbox", outbox.run)

    def _wake_all(self) -> None:
        for wake in self._wakers:
            wake()
