"""Publishes what was committed, in commit order, to the durable stream of events.

Reading the event table after the commit is what makes it impossible to publish what was rolled back
or to forget what was stored. Events leave strictly one after the other, and the loop waits at one
that the bus does not take now: consumers take positions to grow, and skip what seems old.

An event that does not fit its message may be one that a newer instance of the service has stored:
that gets ``SET_ASIDE_AFTER_S`` to publish it. If nobody could, it is set aside, loudly: it stays in
the store, and who needs it misses it, but one job's impossible number does not stop all others. So
is one that the bus will never take because it is too large, unless the limit is raised meanwhile.

Two instances of a service may publish at once. Each goes through all events in order, the stream
drops what comes again within its duplicate window, and consumers skip what comes again later: so
the first arrival of every event is still in order.

Events without a field of their name in ``EventEnvelope`` are private to the service and stay home.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.json_format import ParseError

from everstep.bus.tracing import publishing
from everstep.core.errors import CorruptData, EverstepError, InvalidInput, Unavailable
from everstep.core.ids import slug
from everstep.core.ports import Bus, EventStore, StoredEvent
from everstep.core.system import Clock
from everstep.eventstore.codec import EventCodec
from everstep.wire.codec import to_wire
from everstep.wire.v1.envelope_pb2 import EventEnvelope

CURSOR: Final = "outbox"
BATCH_MAX: Final = 100  # events re-read after a crash in the middle, and dropped as duplicates
# Commits of this process wake the loop; this finds those of another that died before publishing.
POLL_S: Final = 1.0
RETRY_MIN_S: Final = 0.05
# Chosen: rolling out a new version overlaps by less, and recoveries of all jobs wait meanwhile.
SET_ASIDE_AFTER_S: Final = 30.0
RETRY_MAX_S: Final = 1.0  # recovery waits for events; asking once a second costs nothing

ToEnvelope = Callable[[StoredEvent], EventEnvelope | None]

_log = logging.getLogger(__name__)


class Outbox:
    """The publishing loop of one service's store."""

    def __init__(
        self,
        store: EventStore,
        bus: Bus,
        *,
        service: str,
        to_envelope: ToEnvelope,
        clock: Clock,
    ) -> None:
        self._store = store
        self._bus = bus
        self._service = service
        self._to_envelope = to_envelope
        self._clock = clock
        self._woken = asyncio.Event()
        self._trouble = ""
        self.set_aside = 0  # events that could not be published, and were passed over
        self._waiting_since_ms: int | None = None
        self._stuck_at = 0
        self._stuck_since_ms = 0.0

    def wake(self) -> None:
        """Publish soon: something was committed."""
        self._woken.set()

    @property
    def lag_ms(self) -> int:
        """Age of the oldest event known to be unpublished; 0 when there is none."""
        if self._waiting_since_ms is None:
            return 0
        return max(0, self._clock.now_ms() - self._waiting_since_ms)

    @property
    def trouble(self) -> str:
        """Why publishing does not go on; empty when it does."""
        return self._trouble

    async def run(self) -> None:
        """Publish forever."""
        pause_s = RETRY_MIN_S
        while True:
            self._woken.clear()
            try:
                published = await self.publish_batch()
            except (Unavailable, CorruptData, InvalidInput) as error:
                self._note(str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                continue
            self._note("")
            pause_s = RETRY_MIN_S
            if published == 0:
                await self._wait()

    async def publish_batch(self) -> int:
        """Publish what comes after the cursor and move it; return how many events that were.

        Raises:
            Unavailable: the store or the bus; everything up to the failure is published.
            CorruptData: an event that does not fit the contract; the ones before are published.
            InvalidInput: an event that the bus will not take, as it is; likewise.
        """
        position = await self._store.cursor(CURSOR)
        events = await self._store.read_all(after_position=position, limit=BATCH_MAX)
        done = position
        try:
            for event in events:
                self._waiting_since_ms = event.recorded_at_ms
                await self._publish(event)
                done = event.position
            self._waiting_since_ms = None
        finally:
            if done > position:
                await self._store.advance_cursor(CURSOR, done)
        return len(events)

    async def _publish(self, event: StoredEvent) -> None:
        try:
            envelope = self._to_envelope(event)
            if envelope is not None:
                await self._send(event, envelope)
        except EverstepError as error:
            if error.retryable or not self._nobody_could(event):
                raise
            self.set_aside += 1
            _log.error("outbox: set aside, nobody will hear of it: %s", error)

    async def _send(self, event: StoredEvent, envelope: EventEnvelope) -> None:
        subject = event_subject(self._service, envelope)
        try:
            with publishing(subject, envelope.traceparent):
                await self._bus.publish_durable(
                    subject, envelope.SerializeToString(), message_id=event.event_id
                )
        except InvalidInput as error:
            raise InvalidInput(f"event {event.event_id} cannot be published: {error}") from None

    def _nobody_could(self, event: StoredEvent) -> bool:
        """Whether an event that we cannot publish has had time to be published by another."""
        now_ms = self._clock.monotonic_ms()
        if self._stuck_at != event.position:
            self._stuck_at, self._stuck_since_ms = event.position, now_ms
        return now_ms - self._stuck_since_ms >= SET_ASIDE_AFTER_S * 1000

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), POLL_S)
        except TimeoutError:
            return

    def _note(self, trouble: str) -> None:
        if trouble == self._trouble:
            return
        if trouble:
            _log.warning("outbox: publishing stopped: %s", trouble)
        else:
            _log.info("outbox: publishing again")
        self._trouble = trouble


def envelopes(service: str, codecs: Sequence[EventCodec[Any]]) -> ToEnvelope:
    """Return what turns stored events into the service's public ones, in their newest version."""
    public = {field.name for field in EventEnvelope.DESCRIPTOR.oneofs_by_name["payload"].fields}

    def to_envelope(event: StoredEvent) -> EventEnvelope | None:
        codec = next((codec for codec in codecs if codec.knows(event.type)), None)
        if codec is None:
            raise CorruptData(f"event {event.event_id} has the unknown type {event.type!r}")
        type_name, data = codec.upcast(event.type, event.data)
        name = type_name.partition(".")[0]
        if name not in public:
            return None
        envelope = EventEnvelope(
            event_id=event.event_id,
            service=service,
            stream=event.stream,
            version=event.version,
            position=event.position,
            type=type_name,
            recorded_at_ms=event.recorded_at_ms,
            traceparent=str(event.metadata.get("traceparent", "")),
        )
        payload = getattr(envelope, name)
        payload.SetInParent()  # also when all its fields are at their defaults
        try:
            to_wire(data, payload)
        except ParseError as error:
            raise CorruptData(
                f"event {event.event_id} ({type_name}) does not fit its message: {error}"
            ) from error
        return envelope

    return to_envelope


def event_subject(service: str, envelope: EventEnvelope) -> str:
    """Return where an event is published: under its job, else its host, else its stream."""
    name = envelope.WhichOneof("payload") or ""
    payload = getattr(envelope, name)
    about = (
        getattr(payload, "job_id", "") or getattr(payload, "host_id", "") or slug(envelope.stream)
    )
    return f"everstep.v1.event.{service}.{about}.{name}"
