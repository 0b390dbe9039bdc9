import pytest

from everstep.core.errors import Conflict
from everstep.core.ports import NewEvent
from everstep.fleet.store import KEPT_A_STREAM, NewestStore
from everstep.sim.loop import VirtualClock, run


def _event(number):
    return NewEvent(event_id=f"e{number}", type="x.v1", data={"event": number})


def _in_world(main):
    """Run ``main(store, seen)`` in virtual time."""

    async def world():
        import asyncio

        seen = []
        store = NewestStore(VirtualClock(asyncio.get_running_loop()), seen.append)
        await main(store, seen)

    run(world())


def test_append_tells_the_version_and_refuses_another():
    """Two writers cannot both be right."""

    async def main(store, seen):
        stored = await store.append("a", 0, [_event(1), _event(2)])
        assert [event.version for event in stored] == [1, 2]
        assert seen == stored
        with pytest.raises(Conflict):
            await store.append("a", 1, [_event(3)])
        assert await store.load("a", after_version=1) == stored[1:]

    _in_world(main)


def test_retried_append_stores_nothing_twice():
    """A lost answer is asked for again."""

    async def main(store, seen):
        first = await store.append("a", 0, [_event(1)])
        assert await store.append("a", 0, [_event(1)]) == first
        assert len(seen) == 1

    _in_world(main)


def test_forgotten_events_are_refused_instead_of_left_out():
    """Whoever asks for what is gone must not fold the rest."""

    async def main(store, seen):
        for number in range(3 * KEPT_A_STREAM):
            await store.append("a", number, [_event(number)])
        newest = await store.load("a", after_version=2 * KEPT_A_STREAM)
        assert [event.version for event in newest] == list(
            range(2 * KEPT_A_STREAM + 1, 3 * KEPT_A_STREAM + 1)
        )
        with pytest.raises(AssertionError, match="has forgotten"):
            await store.load("a", after_version=0)

    _in_world(main)
