"""What every event store keeps: PostgreSQL and memory under the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.clocks import ManualClock

from everstep.core.errors import Conflict
from everstep.core.ports import Consumed, EventStore, NewEvent, Projection, StoredEvent
from everstep.eventstore.memory import MemoryStore
from everstep.eventstore.postgres import PostgresStore

OpenStore = Callable[..., AbstractAsyncContextManager[EventStore]]


@pytest.fixture(params=["memory", "postgres"])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    """Opens a store on an empty database, with the given projections."""
    if request.param == "postgres":
        url = request.getfixturevalue("database_url")

        def opened(*projections: Projection) -> AbstractAsyncContextManager[EventStore]:
            return PostgresStore.open(url, clock=ManualClock(), projections=projections)

        return opened

    @asynccontextmanager
    async def made(*projections: Projection) -> AsyncIterator[EventStore]:
        yield MemoryStore(clock=ManualClock(), projections=projections)

    return made


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[EventStore]:
    """An empty store."""
    async with open_store() as opened:
        yield opened


def new(event_id: str, **data: Any) -> NewEvent:
    """An event to append."""
    return NewEvent(
        event_id=event_id, type="thing_happened.v1", data=data, metadata={"traceparent": event_id}
    )


def ids(events: list[StoredEvent]) -> list[str]:
    """Which events these are."""
    return [event.event_id for event in events]


async def test_appended_events_are_loaded_as_stored(store: EventStore) -> None:
    """What append returns is what load gives, with every field."""
    stored = await store.append("s", 0, [new("a", x=1.5, y=["ü", None]), new("b", z={"k": [1]})])
    assert stored == await store.load("s")
    assert stored[0] == StoredEvent(
        position=stored[0].position,
        stream="s",
        version=1,
        event_id="a",
        type="thing_happened.v1",
        data={"x": 1.5, "y": ["ü", None]},
        metadata={"traceparent": "a"},
        recorded_at_ms=ManualClock().now_ms(),
    )
    assert [event.version for event in stored] == [1, 2]


async def test_load_after_a_version_returns_only_newer_events(store: EventStore) -> None:
    """A cached fold asks for what it has not seen."""
    await store.append("s", 0, [new("a"), new("b"), new("c")])
    assert ids(await store.load("s", after_version=2)) == ["c"]
    assert await store.load("s", after_version=3) == []
    assert await store.load("unknown") == []


@pytest.mark.parametrize("expected_version", [0, 2])
async def test_append_at_another_version_conflicts(
    store: EventStore, expected_version: int
) -> None:
    """Whoever decided on an older (or a foreign) state has to decide again."""
    await store.append("s", 0, [new("a")])
    with pytest.raises(Conflict, match="stream s is at version 1"):
        await store.append("s", expected_version, [new("b")])
    assert ids(await store.load("s")) == ["a"]


async def test_concurrent_appends_at_one_version_have_one_winner(store: EventStore) -> None:
    """Of many that append to the same version, one succeeds and all others conflict."""
    tries = [store.append("s", 0, [new(f"e{index}")]) for index in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, list) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 19
    assert len(await store.load("s")) == 1


async def test_repeated_append_returns_the_first_ones_events(store: EventStore) -> None:
    """A retry after a lost answer is told what is stored, whichever version it expects."""
    first = await store.append("s", 0, [new("a"), new("b")])
    assert await store.append("s", 0, [new("a"), new("b")]) == first
    assert await store.append("s", 2, [new("a"), new("b")]) == first
    assert await store.load("s") == first


async def test_event_id_of_another_append_conflicts(store: EventStore) -> None:
    """An id stored elsewhere, or beside a new one, is not a retry."""
    await store.append("s", 0, [new("a")])
    with pytest.raises(Conflict):
        await store.append("other", 0, [new("a")])
    with pytest.raises(Conflict):
        await store.append("s", 1, [new("a"), new("b")])
    assert await store.streams() == ["s"]


async def test_read_all_pages_in_position_order(store: EventStore) -> None:
    """Positions grow over all streams; pages neither overlap nor skip."""
    for index in range(7):
        await store.append(f"s{index % 3}", index // 3, [new(f"e{index}")])
    seen: list[StoredEvent] = []
    while page := await store.read_all(after_position=seen[-1].position if seen else 0, limit=3):
        assert len(page) <= 3
        seen += page
    assert ids(seen) == [f"e{index}" for index in range(7)]
    positions = [event.position for event in seen]
    assert positions == sorted(set(positions))


async def test_streams_are_listed_by_prefix(store: EventStore) -> None:
    """A prefix is text, not a pattern."""
    for stream in ("job-b", "job-a", "job_c", "watch-a"):
        await store.append(stream, 0, [new(stream)])
    assert await store.streams() == ["job-a", "job-b", "job_c", "watch-a"]
    assert await store.streams(prefix="job-") == ["job-a", "job-b"]
    assert await store.streams(prefix="job_") == ["job_c"]
    assert await store.streams(prefix="%") == []


async def test_consumed_position_commits_with_the_events(store: EventStore) -> None:
    """Effect and position are stored together, or neither is."""
    handled = Consumed(consumer="me", source="them", position=5)
    await store.append("s", 0, [new("a")], consumed=handled)
    assert await store.consumed_position("me", "them") == 5
    assert await store.consumed_position("me", "others") == 0
    later = Consumed(consumer="me", source="them", position=6)
    with pytest.raises(Conflict):
        await store.append("s", 0, [new("b")], consumed=later)
    assert await store.consumed_position("me", "them") == 5


@pytest.mark.parametrize("position", [3, 5])
async def test_event_handled_before_has_no_second_effect(store: EventStore, position: int) -> None:
    """A foreign event that comes again, or late, changes nothing."""
    await store.append(
        "s", 0, [new("a")], consumed=Consumed(consumer="me", source="them", position=5)
    )
    again = Consumed(consumer="me", source="them", position=position)
    assert await store.append("s", 1, [new("b")], consumed=again) == []
    assert ids(await store.load("s")) == ["a"]
    assert await store.consumed_position("me", "them") == 5


async def test_consumed_position_is_recorded_without_events(store: EventStore) -> None:
    """Deciding that nothing follows counts as handled."""
    handled = Consumed(consumer="me", source="them", position=9)
    assert await store.append("s", 0, [], consumed=handled) == []
    assert await store.consumed_position("me", "them") == 9
    assert await store.streams() == []


async def test_event_handled_by_two_instances_at_once_has_one_effect(store: EventStore) -> None:
    """Two instances of a service may get the same event: one appends, the other does nothing."""
    handled = Consumed(consumer="me", source="them", position=1)
    results = await asyncio.gather(
        *(store.append(f"s{i}", 0, [new(f"e{i}")], consumed=handled) for i in range(10))
    )
    assert sorted(len(stored) for stored in results) == [0] * 9 + [1]
    assert len(await store.streams()) == 1


async def test_repeated_append_with_consumed_returns_the_first_ones_events(
    store: EventStore,
) -> None:
    """A retry learns of its own success even though its event counts as handled by now."""
    handled = Consumed(consumer="me", source="them", position=1)
    first = await store.append("s", 0, [new("a")], consumed=handled)
    assert await store.append("s", 0, [new("a")], consumed=handled) == first


async def test_cursor_moves_forward_only(store: EventStore) -> None:
    """A slow instance does not throw a fast one back."""
    assert await store.cursor("outbox") == 0
    for position in (4, 9, 7):
        await store.advance_cursor("outbox", position)
    assert await store.cursor("outbox") == 9
    assert await store.cursor("other") == 0


class Seen:
    """A projection that remembers, and refuses one event."""

    def __init__(self, *, refuse: str = "") -> None:
        self.events: list[StoredEvent] = []
        self._refuse = refuse

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        assert transaction is not None
        if event.event_id == self._refuse:
            raise ZeroDivisionError(event.event_id)
        self.events.append(event)


async def test_projections_see_events_in_version_order(open_store: OpenStore) -> None:
    """Every projection is given every stored event, complete."""
    first, second = Seen(), Seen()
    async with open_store(first, second) as store:
        stored = await store.append("s", 0, [new("a"), new("b")])
    assert first.events == second.events == stored


async def test_failing_projection_leaves_nothing_stored(open_store: OpenStore) -> None:
    """Events and tables change together: neither the events nor the position remain."""
    async with open_store(Seen(refuse="b")) as store:
        handled = Consumed(consumer="me", source="them", position=1)
        with pytest.raises(ZeroDivisionError):
            await store.append("s", 0, [new("a"), new("b")], consumed=handled)
        assert await store.load("s") == []
        assert await store.read_all(after_position=0, limit=10) == []
        assert await store.consumed_position("me", "them") == 0
        assert ids(await store.append("s", 0, [new("a")], consumed=handled)) == ["a"]
