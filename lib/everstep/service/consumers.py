"""Hands another service's events to a service, each one once as far as its store knows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from everstep.core.ports import Consumed, EventStore, Message
from everstep.service.health import Health
from everstep.service.metrics import Metrics
from everstep.wire.v1.envelope_pb2 import EventEnvelope

_log = logging.getLogger(__name__)


class EventConsumer:
    """The receiving end of one source's events."""

    def __init__(
        self,
        store: EventStore,
        on_event: Callable[[EventEnvelope, Consumed], Awaitable[None]],
        *,
        consumer: str,
        source: str,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._on_event = on_event
        self._consumer = consumer
        self._source = source
        self._health = health
        self._failures = metrics.consumer_failures.labels(source)
        self._handled = 0  # as far as we know; the store may know more

    async def receive(self, message: Message) -> None:
        """Handle one message; what raises is delivered again."""
        try:
            envelope = EventEnvelope.FromString(message.data)
        except DecodeError:
            # It will not get better by being delivered again, and must not stop what follows.
            _log.exception("skipped %s: %d bytes, no event", message.subject, len(message.data))
            return
        position = envelope.position
        if position <= self._handled or position <= await self._known():
            return
        handled = Consumed(consumer=self._consumer, source=self._source, position=position)
        name = f"consumer of {self._source}"
        well = False
        try:
            await self._on_event(envelope, handled)
            well = True
        finally:
            if well:
                self._health.trouble(name, "")
            else:
                self._failures.inc()
                self._health.trouble(name, f"fails at {envelope.type} ({envelope.event_id})")
        self._handled = position

    async def _known(self) -> int:
        return await self._store.consumed_position(self._consumer, self._source)
