"""The simulator's own parts: what they model must be as strict as the real thing."""

from __future__ import annotations

import asyncio

import pytest

from everstep.core.errors import NoResponders, Unavailable
from everstep.eventstore.memory import MemoryStore
from everstep.sim import loop
from everstep.sim.loop import VirtualClock
from everstep.sim.memory import Copy, HostMemory
from everstep.sim.network import Conditions, Network
from everstep.sim.process import Database, Handle, Process, install
from everstep.sim.seeds import SeededIds, Seeds


def copy(step: int, generation: int = 1) -> Copy:
    """A copy of rank 0."""
    return Copy(rank=0, step=step, generation=generation, state=f"s{step}")


def test_memory_keeps_the_two_newest_and_refuses_what_is_fenced():
    """Two slots; the newest is never the one that is overwritten."""
    memory = HostMemory()
    for step in (1, 2, 3):
        assert memory.write("j", copy(step), own=True, generation=1)
    assert [one.step for one, _ in memory.held("j")] == [2, 3]
    memory.fences["j"] = 2
    assert not memory.write("j", copy(4), own=True, generation=1)
    memory.forget_after("j", 2)
    assert [one.step for one, _ in memory.held("j")] == [2]


def test_draws_of_one_actor_do_not_depend_on_another():
    """An actor that draws once more changes nobody else."""
    assert Seeds(1).of("a").random() == Seeds(1).of("a").random()
    assert Seeds(1).of("a").random() != Seeds(1).of("b").random()
    assert Seeds(1).of("a").random() != Seeds(2).of("a").random()
    assert SeededIds(Seeds(1).of("x")).new_id("e") == SeededIds(Seeds(1).of("x")).new_id("e")


def test_network_that_is_away_drops_plain_messages_and_refuses_durable_ones():
    """As the real connection does."""

    async def main():
        network = Network(Seeds(1).of("network"), Conditions())
        talker, listener = network.endpoint("talker"), network.endpoint("listener")
        heard = []

        async def receive(message):
            heard.append(message.data)

        await listener.subscribe("a", receive)
        await talker.publish("a", b"1")
        talker.cut()
        await talker.publish("a", b"2")
        with pytest.raises(Unavailable):
            await talker.publish_durable("everstep.v1.event.x", b"3", message_id="3")
        talker.mend()
        await talker.publish("a", b"4")
        await asyncio.sleep(1.0)
        return heard

    assert loop.run(main()) == [b"1", b"4"]


def test_killed_process_serves_nobody_and_stores_nothing():
    """Not even what its own clean-up would still do."""

    async def main():
        install(asyncio.get_running_loop())
        clock = VirtualClock(asyncio.get_running_loop())
        database = Database(MemoryStore(clock=clock))
        network = Network(Seeds(1).of("network"), Conditions())
        process, server, asker = Process("p"), network.endpoint("p"), network.endpoint("q")
        store = Handle(database, process)
        moved = []

        async def work():
            try:
                await asyncio.sleep(10.0)
            finally:
                await store.advance_cursor("c", 7)
                moved.append(True)

        async def reply(message):
            return message.data

        process.run(work())
        await process.run(server.serve("s", reply))
        assert await asker.request("s", b"x", timeout_s=1.0) == b"x"
        process.kill()
        server.kill()
        with pytest.raises(NoResponders):
            await asker.request("s", b"x", timeout_s=1.0)
        await asyncio.sleep(20.0)
        return moved, await database.store.cursor("c")

    assert loop.run(main()) == ([], 0)
