"""The bus while NATS is away, and after it has come back."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.integration.lib.conftest import OwnServer
from tests.waiting import until

from everstep.bus.nats import PENDING_BYTES_MAX, NatsBus
from everstep.core.errors import Unavailable
from everstep.core.ports import Message

TOPIC = "everstep.v1.event.test.x.happened"


class Inbox:
    """Receives and remembers."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    async def receive(self, message: Message) -> None:
        self.data.append(message.data)

    async def reply(self, message: Message) -> bytes:
        self.data.append(message.data)
        return b"ok"


async def store(bus: NatsBus, *texts: bytes) -> None:
    """Publish until each is stored, as every durable publisher does."""
    for text in texts:
        while True:
            try:
                await bus.publish_durable(TOPIC, text, message_id=text.decode())
                break
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_bus_opened_before_its_server_connects_when_it_comes(own_nats: OwnServer) -> None:
    """Start order does not matter; until then nothing blocks and nothing breaks."""
    async with NatsBus.open(own_nats.url, name="early") as bus:
        await bus.publish("test.lost", b"x")
        with pytest.raises(Unavailable):
            await bus.publish_durable(TOPIC, b"x", message_id="x")
        with pytest.raises(Unavailable):
            await bus.request("test.x", b"x", timeout_s=0.1)
        assert not bus.connected
        inbox = Inbox()
        subscribing = asyncio.create_task(bus.subscribe("test.x", inbox.receive))
        await own_nats.start()
        await subscribing
        await bus.publish("test.x", b"1")
        await until(lambda: inbox.data == [b"1"])


async def test_bus_that_never_connects_can_be_closed(own_nats: OwnServer) -> None:
    """An agent may stop while the control plane is away."""
    async with asyncio.timeout(10), NatsBus.open(own_nats.url, name="lonely") as bus:
        await bus.publish("test.x", b"x")


async def test_publishing_without_a_server_neither_blocks_nor_raises(own_nats: OwnServer) -> None:
    """Training must not feel that NATS is away, however much it has to tell."""
    await own_nats.start()
    async with NatsBus.open(own_nats.url, name="agent:h1") as bus:
        await bus.wait_connected()
        inbox = Inbox()
        await bus.subscribe("test.x", inbox.receive)
        await own_nats.kill()
        await until(lambda: not bus.connected)
        started = asyncio.get_running_loop().time()
        chunk = bytes(64 * 1024)
        for _ in range(3 * PENDING_BYTES_MAX // len(chunk)):
            await bus.publish("test.x", chunk)
        assert asyncio.get_running_loop().time() - started < 5
        await own_nats.start()
        await until(lambda: bus.connected)
        await bus.publish("test.x", b"back")
        await until(lambda: b"back" in inbox.data)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_everything_goes_on_after_a_restart(own_nats: OwnServer, end: str) -> None:
    """Subscriptions, servers and consumers are there again, and nothing stored is lost.

    A killed server may have forgotten the newest acknowledgements: then messages come again, from
    an earlier one on, which is why consumers look at positions.
    """
    await own_nats.start()
    plain, served, stored = Inbox(), Inbox(), Inbox()
    async with (
        NatsBus.open(own_nats.url, name="one") as bus,
        NatsBus.open(own_nats.url, name="two") as other,
    ):
        await bus.subscribe("test.plain", plain.receive)
        await bus.serve("test.served", served.reply)
        await bus.consume(TOPIC, stored.receive, durable="test")
        await store(other, b"1", b"2")
        await until(lambda: stored.data == [b"1", b"2"])
        for round_index in range(2):
            await getattr(own_nats, end)()
            await until(lambda: not bus.connected and not other.connected)
            await own_nats.start()
            await bus.wait_connected()
            await other.wait_connected()
            text = b"after %d" % round_index
            await store(other, text)
            await until(lambda text=text: stored.data[-1:] == [text])
            assert await other.request("test.served", text, timeout_s=60) == b"ok"
            await other.publish("test.plain", text)
            await until(lambda text=text: plain.data[-1:] == [text])
    everything = [b"1", b"2", b"after 0", b"after 1"]
    assert list(dict.fromkeys(stored.data)) == everything
    if end == "stop":
        assert stored.data == everything


async def test_message_in_work_during_a_restart_is_not_lost(own_nats: OwnServer) -> None:
    """Its acknowledgement went nowhere: it may come twice, but before any later one."""
    await own_nats.start()
    taken, finish = asyncio.Event(), asyncio.Event()
    seen: list[bytes] = []

    async def receive(message: Message) -> None:
        seen.append(message.data)
        taken.set()
        await finish.wait()

    async with NatsBus.open(own_nats.url, name="one") as bus:
        await bus.consume(TOPIC, receive, durable="test")
        await bus.wait_connected()
        await store(bus, b"1", b"2")
        await taken.wait()
        await own_nats.kill()
        await until(lambda: not bus.connected)
        finish.set()
        await own_nats.start()
        await until(lambda: b"2" in seen)
    assert seen in ([b"1", b"2"], [b"1", b"1", b"2"])


async def test_server_that_lost_its_disk_gets_its_streams_again(own_nats: OwnServer) -> None:
    """Streams and consumers are created anew; what is published from then on is consumed."""
    await own_nats.start()
    stored = Inbox()
    async with NatsBus.open(own_nats.url, name="one") as bus:
        await bus.consume(TOPIC, stored.receive, durable="test")
        await own_nats.kill()
        await until(lambda: not bus.connected)
        (own_nats.process.command.cwd / "jetstream").rename(own_nats.process.command.cwd / "lost")
        await own_nats.start()
        await store(bus, b"new")
        await until(lambda: stored.data == [b"new"])


KILLED = """
import asyncio, sys
from everstep.bus.nats import NatsBus

async def receive(message):
    print("taken", flush=True)
    await asyncio.Event().wait()

async def main():
    async with NatsBus.open(sys.argv[1], name="victim") as bus:
        await bus.consume(sys.argv[2], receive, durable="test")
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_message_of_a_killed_consumer_goes_to_the_next_one(own_nats: OwnServer) -> None:
    """A process killed in the middle of a message does not hold it up for long."""
    await own_nats.start()
    inbox = Inbox()
    async with NatsBus.open(own_nats.url, name="one") as bus:
        await bus.wait_connected()
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, own_nats.url, TOPIC, stdout=-1
        )
        await store(bus, b"1", b"2")
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"taken\n"
        await bus.consume(TOPIC, inbox.receive, durable="test")
        victim.kill()
        await victim.wait()
        # A server that is not told otherwise waits for 30 s.
        await until(lambda: inbox.data == [b"1", b"2"], limit_s=20)


async def test_consumer_that_works_for_long_keeps_its_message(own_nats: OwnServer) -> None:
    """Longer than the server waits for a silent one: no second delivery."""
    await own_nats.start()
    seen: list[bytes] = []

    async def receive(message: Message) -> None:
        seen.append(message.data)
        if message.data == b"1":
            await asyncio.sleep(3)  # this is the work, not a wait for something else

    async with NatsBus.open(own_nats.url, name="one") as bus:
        await bus.consume(TOPIC, receive, durable="test")
        await bus.consume(TOPIC, receive, durable="test")
        await store(bus, b"1", b"2")
        await until(lambda: b"2" in seen)
    assert seen == [b"1", b"2"]
