"""From a commit in PostgreSQL to the durable stream on NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.lib.conftest import OwnServer
from tests.toy import AGGREGATE, CODEC, Command, Cordon, Event, Host, Note
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.errors import CorruptData, InvalidInput, Unavailable
from everstep.core.ports import Bus, EventStore, Message, StoredEvent
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.outbox import CURSOR, SET_ASIDE_AFTER_S, Outbox, envelopes
from everstep.eventstore.postgres import PostgresStore
from everstep.service.handler import Handler
from everstep.wire.v1.envelope_pb2 import EventEnvelope


class Arrivals:
    """Consumes everything and remembers it in order of arrival."""

    def __init__(self) -> None:
        self.messages: list[tuple[Message, EventEnvelope]] = []

    async def receive(self, message: Message) -> None:
        self.messages.append((message, EventEnvelope.FromString(message.data)))

    @property
    def positions(self) -> set[int]:
        """Of all that came, however often."""
        return {envelope.position for envelope in self.envelopes}

    @property
    def envelopes(self) -> list[EventEnvelope]:
        return [envelope for _, envelope in self.messages]


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresStore]:
    """An empty store."""
    async with PostgresStore.open(database_url, clock=SystemClock()) as opened:
        yield opened


@pytest.fixture
def service() -> str:
    """A service name, and so a subject, of this test's own."""
    return RandomIds().new_id("toy").replace("-", "_")


def outbox(store: EventStore, bus: Bus, service: str) -> Outbox:
    """The publishing loop, not running."""
    to_envelope = envelopes(service, [CODEC])
    return Outbox(store, bus, service=service, to_envelope=to_envelope, clock=SystemClock())


def handler(store: EventStore, *boxes: Outbox) -> Handler[Command, Host, Event]:
    """Commands whose commits wake the outboxes."""
    return Handler(AGGREGATE, store, RandomIds(), on_commit=[box.wake for box in boxes])


async def test_committed_event_is_published_with_its_envelope(
    store: PostgresStore, nats_url: str, service: str
) -> None:
    """Subject, message id and every field of the envelope follow from the stored event."""
    arrivals = Arrivals()
    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.consume(f"everstep.v1.event.{service}.>", arrivals.receive, durable=service)
        box = outbox(store, bus, service)
        await handler(store).handle(Note(host_id="h1", text="private: stays at home"))
        await handler(store).handle(Cordon(host_id="h1", incident_id="i"))
        assert await box.publish_batch() == 2
        await until(lambda: arrivals.messages)
    (message, envelope), (stored,) = arrivals.messages[0], (await store.load("host-h1"))[1:]
    assert message.subject == f"everstep.v1.event.{service}.h1.host_cordoned"
    assert message.headers["Nats-Msg-Id"] == stored.event_id
    assert envelope == EventEnvelope(
        event_id=stored.event_id,
        service=service,
        stream="host-h1",
        version=2,
        position=stored.position,
        type="host_cordoned.v1",
        recorded_at_ms=stored.recorded_at_ms,
        host_cordoned={"host_id": "h1", "reason": "cordon 1", "incident_id": "i", "at_ms": 1000},
    )
    assert await store.cursor(CURSOR) == stored.position


async def test_commit_wakes_the_outbox(store: PostgresStore, nats_url: str, service: str) -> None:
    """Events leave when they are committed, not when the next poll comes."""
    arrivals = Arrivals()
    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.consume(f"everstep.v1.event.{service}.>", arrivals.receive, durable=service)
        box = outbox(store, bus, service)
        running = asyncio.create_task(box.run())
        instance = handler(store, box)
        delays = []
        for count in range(1, 11):
            await instance.handle(Cordon(host_id="h1"))
            started = asyncio.get_running_loop().time()
            await until(lambda count=count: len(arrivals.messages) == count)
            delays.append(asyncio.get_running_loop().time() - started)
        running.cancel()
    assert sorted(delays)[5] < 0.5  # the poll would take 1 s


async def test_commit_of_a_dead_process_is_published_by_polling(
    store: PostgresStore, nats_url: str, service: str
) -> None:
    """Whoever committed may have died before it could wake anybody."""
    arrivals = Arrivals()
    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.consume(f"everstep.v1.event.{service}.>", arrivals.receive, durable=service)
        running = asyncio.create_task(outbox(store, bus, service).run())
        await handler(store).handle(Cordon(host_id="h1"))
        await until(lambda: arrivals.messages)
        running.cancel()


async def test_two_outboxes_publish_each_event_once_and_in_order(
    store: PostgresStore, nats_url: str, service: str
) -> None:
    """Two instances of a service need no leader."""
    arrivals = Arrivals()
    async with NatsBus.open(nats_url, name="one") as bus, NatsBus.open(nats_url, name="two") as two:
        await bus.consume(f"everstep.v1.event.{service}.>", arrivals.receive, durable=service)
        await two.wait_connected()
        boxes = [outbox(store, bus, service), outbox(store, two, service)]
        running = [asyncio.create_task(box.run()) for box in boxes]
        instance = handler(store, *boxes)
        for index in range(60):
            await instance.handle(Cordon(host_id=f"h{index % 4}", times=1 + index % 2))
        await until(lambda: len(arrivals.messages) >= 90)
        for task in running:
            task.cancel()
        positions = [envelope.position for envelope in arrivals.envelopes]
    assert positions == [
        event.position for event in await store.read_all(after_position=0, limit=99)
    ]


async def test_nothing_is_lost_or_doubled_while_nats_is_away(
    store: PostgresStore, own_nats: OwnServer, service: str
) -> None:
    """Commits go on; what they made is published in order when NATS is back."""
    arrivals = Arrivals()
    await own_nats.start()
    async with NatsBus.open(own_nats.url, name="test") as bus:
        await bus.consume(f"everstep.v1.event.{service}.>", arrivals.receive, durable=service)
        box = outbox(store, bus, service)
        running = asyncio.create_task(box.run())
        instance = handler(store, box)
        for round_index in range(3):
            await instance.handle(Cordon(host_id="h1", times=3))
            await own_nats.stop()
            await instance.handle(Cordon(host_id="h1", times=3))
            await until(lambda: box.trouble, what="the outbox says that it cannot publish")
            await until(lambda: box.lag_ms > 0)
            await own_nats.start()
            wanted = 6 * (round_index + 1)
            await until(lambda wanted=wanted: len(arrivals.positions) >= wanted)
            await until(lambda: box.trouble == "" and box.lag_ms == 0)
        running.cancel()
        # A message whose acknowledgement was lost is handed out again; it is stored once.
        stored = Arrivals()
        await bus.consume(f"everstep.v1.event.{service}.>", stored.receive, durable=f"{service}_2")
        expected = [event.position for event in await store.load("host-h1")]
        await until(lambda: len(stored.messages) >= len(expected))
    assert [envelope.position for envelope in stored.envelopes] == expected
    firsts = dict.fromkeys(envelope.position for envelope in arrivals.envelopes)
    assert list(firsts) == expected


class Refuses:
    """A bus on which one subject cannot be stored for a while."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.refused = ""

    async def publish_durable(self, subject: str, data: bytes, *, message_id: str) -> None:
        if self.refused and f".{self.refused}." in subject:
            raise Unavailable(subject)
        self.stored.append(subject.split(".")[4])


async def test_publishing_stops_at_the_first_failure(store: PostgresStore) -> None:
    """Later events wait for an earlier one, and nothing is sent twice."""
    bus = Refuses()
    box = outbox(store, bus, "toy")
    for host_id in ("h1", "h2", "h3"):
        await handler(store).handle(Cordon(host_id=host_id))
    running = asyncio.create_task(box.run())
    await until(lambda: len(bus.stored) == 3)
    bus.refused = "h5"
    for host_id in ("h4", "h5", "h6"):
        await handler(store, box).handle(Cordon(host_id=host_id))
    await until(lambda: box.trouble)
    assert bus.stored == ["h1", "h2", "h3", "h4"]
    bus.refused = ""
    await until(lambda: len(bus.stored) == 6)
    running.cancel()
    assert bus.stored == ["h1", "h2", "h3", "h4", "h5", "h6"]


class Later(SystemClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


async def test_event_that_nobody_can_publish_is_set_aside_in_the_end(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer instance gets its time; then others go on, and it says what is missing."""
    bus, clock, good = Refuses(), Later(), envelopes("toy", [CODEC])

    def to_envelope(event: StoredEvent) -> EventEnvelope | None:
        if event.stream == "host-h2":
            raise CorruptData(f"event {event.event_id} does not fit its message")
        return good(event)

    box = Outbox(store, bus, service="toy", to_envelope=to_envelope, clock=clock)
    for host_id in ("h1", "h2", "h3"):
        await handler(store).handle(Cordon(host_id=host_id))
    running = asyncio.create_task(box.run())
    await until(lambda: box.trouble)
    assert (bus.stored, box.set_aside) == (["h1"], 0)
    clock.ahead_ms = int(SET_ASIDE_AFTER_S * 1000)
    await until(lambda: len(bus.stored) == 2)
    await until(lambda: not box.trouble)
    running.cancel()
    assert (bus.stored, box.set_aside) == (["h1", "h3"], 1)
    assert "set aside, nobody will hear of it: event e-" in caplog.text


class Small(Refuses):
    """A bus that takes no message of more bytes."""

    async def publish_durable(self, subject: str, data: bytes, *, message_id: str) -> None:
        if len(data) > 1000:
            raise InvalidInput(f"{subject}: {len(data)} bytes are more than the server takes")
        await super().publish_durable(subject, data, message_id=message_id)


async def test_event_that_the_bus_will_never_take_is_set_aside_in_the_end(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop itself goes on, says why nothing is published, and then passes the event over."""
    bus, clock = Small(), Later()
    to_envelope = envelopes("toy", [CODEC])
    box = Outbox(store, bus, service="toy", to_envelope=to_envelope, clock=clock)
    await handler(store).handle(Cordon(host_id="h1"))
    await handler(store).handle(Cordon(host_id="h2", incident_id="i" * 1000))
    await handler(store).handle(Cordon(host_id="h3"))
    running = asyncio.create_task(box.run())
    await until(lambda: box.trouble or running.done())
    assert not running.done()
    assert "more than the server takes" in box.trouble
    assert (bus.stored, box.set_aside) == (["h1"], 0)
    clock.ahead_ms = int(SET_ASIDE_AFTER_S * 1000)
    await until(lambda: len(bus.stored) == 2)
    await until(lambda: not box.trouble)
    running.cancel()
    assert (bus.stored, box.set_aside) == (["h1", "h3"], 1)
    assert "set aside, nobody will hear of it: event e-" in caplog.text


async def test_event_that_another_instance_has_published_is_not_set_aside(
    store: PostgresStore,
) -> None:
    """It knew the newer version."""
    old, new = Refuses(), Refuses()

    def unknown(event: StoredEvent) -> EventEnvelope | None:
        raise CorruptData(f"event {event.event_id} has an unknown type")

    older = Outbox(store, old, service="toy", to_envelope=unknown, clock=SystemClock())
    await handler(store).handle(Cordon(host_id="h1"))
    running = asyncio.create_task(older.run())
    await until(lambda: older.trouble)
    assert await outbox(store, new, "toy").publish_batch() == 1
    await until(lambda: not older.trouble)
    running.cancel()
    assert (new.stored, old.stored, older.set_aside) == (["h1"], [], 0)
