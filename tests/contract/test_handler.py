"""The command loop on both event stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.clocks import ManualClock
from tests.toy import AGGREGATE, CODEC, Command, Cordon, Event, Host, HostCordoned

from everstep.core.errors import Conflict
from everstep.core.ports import Consumed, EventStore, NewEvent
from everstep.core.system import RandomIds
from everstep.eventstore.memory import MemoryStore
from everstep.eventstore.postgres import PostgresStore
from everstep.service.handler import ATTEMPTS_MAX, Handler

ToyHandler = Handler[Command, Host, Event]


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    """An empty store."""
    if request.param == "memory":
        yield MemoryStore(clock=ManualClock())
        return
    url = request.getfixturevalue("database_url")
    async with PostgresStore.open(url, clock=ManualClock()) as opened:
        yield opened


def handler(store: EventStore) -> ToyHandler:
    """One instance of a service."""
    return Handler(AGGREGATE, store, RandomIds())


def consumed(position: int) -> Consumed:
    """A foreign event."""
    return Consumed(consumer="me", source="monitor", position=position)


async def test_accepted_command_is_stored_and_folded(store: EventStore) -> None:
    """The answer holds the events, and the state and version after them."""
    handled = await handler(store).handle(Cordon(host_id="a", times=2, incident_id="i"))
    assert [event.reason for event in handled.events] == ["cordon 1", "cordon 2"]
    assert handled.state == Host(cordoned=2, incidents=frozenset({"i"}))
    assert (handled.version, handled.rejected) == (2, None)
    stored = await store.load("host-a")
    assert [CODEC.decode(event.type, event.data) for event in stored] == list(handled.events)


async def test_command_sent_again_changes_nothing(store: EventStore) -> None:
    """An empty decision is an answer: already so."""
    instance = handler(store)
    first = await instance.handle(Cordon(host_id="a", incident_id="i"))
    again = await instance.handle(Cordon(host_id="a", incident_id="i"))
    assert (again.events, again.state, again.version) == ((), first.state, 1)
    assert len(await store.load("host-a")) == 1


async def test_rejected_command_stores_nothing(store: EventStore) -> None:
    """A refusal carries its reason and the unchanged state."""
    handled = await handler(store).handle(Cordon(host_id="bad"))
    assert handled.rejected is not None
    assert handled.rejected.why == "unknown_host"
    assert (handled.events, handled.state, handled.version) == ((), Host(), 0)
    assert await store.streams() == []


async def test_instance_with_a_stale_fold_catches_up(store: EventStore) -> None:
    """What another instance has appended is part of the next decision."""
    first, second = handler(store), handler(store)
    for _ in range(3):
        await first.handle(Cordon(host_id="a"))
        await second.handle(Cordon(host_id="a"))
    reasons = [event.data["reason"] for event in await store.load("host-a")]
    assert reasons == [f"cordon {count}" for count in range(1, 7)]
    assert (await first.state("host-a")).cordoned == 6


async def test_concurrent_commands_of_two_instances_all_take_effect(store: EventStore) -> None:
    """Whoever loses the race decides again on the winner's state."""
    instances = [handler(store), handler(store)]
    await asyncio.gather(*(instances[index % 2].handle(Cordon(host_id="a")) for index in range(40)))
    reasons = [event.data["reason"] for event in await store.load("host-a")]
    assert reasons == [f"cordon {count}" for count in range(1, 41)]


async def test_streams_do_not_disturb_each_other(store: EventStore) -> None:
    """Commands for different streams run at once and keep their own states."""
    instance = handler(store)
    await asyncio.gather(*(instance.handle(Cordon(host_id=f"h{i % 5}")) for i in range(50)))
    for index in range(5):
        assert (await instance.state(f"host-h{index}")).cordoned == 10


async def test_foreign_event_has_its_effect_once(store: EventStore) -> None:
    """Delivered again, to another instance, it does nothing, and says so."""
    await handler(store).handle(Cordon(host_id="a"), consumed=consumed(7))
    again = await handler(store).handle(Cordon(host_id="a"), consumed=consumed(7))
    assert (again.events, again.state.cordoned, again.version) == ((), 1, 1)


async def test_foreign_event_handled_by_two_instances_at_once_has_one_effect(
    store: EventStore,
) -> None:
    """The race that a redelivery to a second instance is."""
    handled = await asyncio.gather(
        *(handler(store).handle(Cordon(host_id="a"), consumed=consumed(7)) for _ in range(8))
    )
    assert sorted(len(result.events) for result in handled) == [0] * 7 + [1]
    assert len(await store.load("host-a")) == 1


@pytest.mark.parametrize(
    "command", [Cordon(host_id="bad"), Cordon(host_id="a", times=0)], ids=["rejected", "already"]
)
async def test_foreign_event_without_effect_counts_as_handled(
    store: EventStore, command: Cordon
) -> None:
    """Deciding that nothing follows is not asked again."""
    await handler(store).handle(command, consumed=consumed(7))
    assert await store.consumed_position("me", "monitor") == 7


async def test_wakers_are_called_after_commits_only(store: EventStore) -> None:
    """No event, no call."""
    calls: list[int] = []
    instance: ToyHandler = Handler(
        AGGREGATE, store, RandomIds(), on_commit=[lambda: calls.append(1)]
    )
    await instance.handle(Cordon(host_id="a", incident_id="i"))
    await instance.handle(Cordon(host_id="a", incident_id="i"))
    await instance.handle(Cordon(host_id="bad"))
    await instance.handle(Cordon(host_id="a", times=0), consumed=consumed(1))
    assert calls == [1]


class Rival:
    """A store on which somebody else is always faster."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.appends = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(
        self, stream: str, version: int, events: list[NewEvent], *, consumed: Consumed | None
    ) -> object:
        self.appends += 1
        name, data = CODEC.encode(
            HostCordoned(host_id="a", reason="rival", incident_id="", at_ms=0)
        )
        rival = NewEvent(event_id=f"rival-{self.appends}", type=name, data=data)
        await self._store.append(stream, version, [rival])
        return await self._store.append(stream, version, events, consumed=consumed)


async def test_endless_race_ends_in_a_conflict(store: EventStore) -> None:
    """The number of tries is bounded; the caller learns that it may send again."""
    rival = Rival(store)
    with pytest.raises(Conflict, match="send again"):
        await handler(rival).handle(Cordon(host_id="a"))
    assert rival.appends == ATTEMPTS_MAX
