"""The relay between hosts, over real sockets: what passes, what does not, and what is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from everstep.core.errors import InvalidInput
from everstep.core.system import SystemClock
from everstep.local.relay import HOST, Line, Relay, Rule

PATIENCE_S = 20.0
MESSAGES = 40


class Far:
    """A server that keeps what it gets and says it back."""

    def __init__(self):
        self.got = b""
        self.connections = 0
        self._stirred = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        while piece := await reader.read(1 << 16):
            self.got += piece
            writer.write(piece)
            self._stirred.set()
            self._stirred = asyncio.Event()

    async def until(self, condition):
        """Wait until it has got what was sent."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self._stirred.wait()


@asynccontextmanager
async def lines(line: Line = Line.NATS, owner=lambda _: ""):
    """A relay of host h1 with one line to a far server; yields (relay, far, connect)."""
    far = Far()
    server = await asyncio.start_server(far.serve, HOST, 0)
    relay = Relay(clock=SystemClock(), owner=owner)
    port = await relay.open("h1", line, server.sockets[0].getsockname()[1])
    opened = []

    async def connect():
        pair = await asyncio.open_connection(HOST, port)
        opened.append(pair[1])
        return pair

    try:
        yield relay, far, connect
    finally:
        for writer in opened:
            writer.close()
        await relay.close()
        server.close()


def run(work):
    """Run a test's coroutine; nothing here takes long."""
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def exchange(pair, data: bytes) -> bytes:
    """Send and take back as much."""
    reader, writer = pair
    writer.write(data)
    return await reader.readexactly(len(data))


def test_sound_line_passes_everything_both_ways():
    """As if it were not there."""

    async def work():
        async with lines(Line.S3) as (_, far, connect):
            data = bytes(range(256)) * 8_000
            assert await exchange(await connect(), data) == data
            assert far.got == data

    run(work())


def test_held_line_tells_nobody_and_delivers_later():
    """A partition: connections stay, and what was sent comes when it is over."""

    async def work():
        async with lines() as (relay, far, connect):
            pair = await connect()
            assert await exchange(pair, b"PING\r\n") == b"PING\r\n"
            relay.set_rule("h1", Line.NATS, Rule(held=True))
            pair[1].write(b"PONG\r\n")
            late = await connect()  # accepted, and nothing behind it
            relay.set_rule("h2", Line.NATS, Rule(cut=True))  # of another host
            waits = asyncio.create_task(pair[0].readexactly(6))
            done, _ = await asyncio.wait({waits}, timeout=0.2)
            assert (done, far.connections, far.got) == (set(), 1, b"PING\r\n")
            relay.heal()
            assert await waits == b"PONG\r\n"
            assert await exchange(late, b"SUB a 1\r\n") == b"SUB a 1\r\n"

    run(work())


def test_cut_line_ends_connections_and_takes_no_new_ones():
    """Both sides are told at once."""

    async def work():
        async with lines() as (relay, far, connect):
            pair = await connect()
            await exchange(pair, b"PING\r\n")
            relay.set_rule("h1", Line.NATS, Rule(cut=True))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await pair[0].readexactly(1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await exchange(await connect(), b"PING\r\n")
            assert far.got == b"PING\r\n"
            relay.heal()
            assert await exchange(await connect(), b"PING\r\n") == b"PING\r\n"

    run(work())


@pytest.mark.parametrize("cut", ["h1", "h2"])
def test_connection_between_hosts_obeys_both(cut):
    """Whose connection it is, the relay finds out when it comes."""

    async def work():
        async with lines(Line.PEERS, owner=lambda _: "h2") as (relay, _, connect):
            pair = await connect()
            assert await exchange(pair, b"push") == b"push"
            relay.set_rule(cut, Line.PEERS, Rule(cut=True))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await pair[0].readexactly(1)

    run(work())


@pytest.mark.parametrize(
    ("rule", "times"), [(Rule(drop_share=1.0), 0), (Rule(duplicate_share=1.0), 2), (Rule(), 1)]
)
def test_published_messages_are_left_out_or_come_twice_and_others_stay(rule, times):
    """Only what is published; the protocol stays whole."""

    async def work():
        async with lines() as (relay, far, connect):
            relay.set_rule("h1", Line.NATS, rule)
            _, writer = await connect()
            message = b"PUB a.b 5\r\nhello\r\n"
            writer.write(b"SUB x 1\r\n" + message + b"PING\r\n")
            await far.until(lambda: far.got.endswith(b"PING\r\n"))
            assert far.got == b"SUB x 1\r\n" + message * times + b"PING\r\n"

    run(work())


def test_share_of_messages_is_drawn_and_counted():
    """Some arrive, some do not, and the relay knows how many."""

    async def work():
        async with lines() as (relay, far, connect):
            relay.set_rule("h1", Line.NATS, Rule(drop_share=0.5))
            _, writer = await connect()
            writer.write(b"PUB a 1\r\nx\r\n" * MESSAGES + b"PING\r\n")
            await far.until(lambda: far.got.endswith(b"PING\r\n"))
            arrived = far.got.count(b"PUB")
            assert 0 < arrived < MESSAGES
            assert relay.counts["dropped"] == MESSAGES - arrived

    run(work())


def test_same_seed_leaves_out_the_same_messages_again():
    """On a stack of any name, and whatever the relay has done before."""
    messages = [f"PUB a 2\r\n{n:02}\r\n".encode() for n in range(MESSAGES)]

    async def arrived(seed: str, times: int) -> list[list[bytes]]:
        found = []
        async with lines() as (relay, far, connect):
            _, writer = await connect()
            for _ in range(times):
                far.got = b""
                relay.set_rule("h1", Line.NATS, Rule(drop_share=0.5, seed=seed))
                writer.write(b"".join(messages) + b"PING\r\n")
                await far.until(lambda: far.got.endswith(b"PING\r\n"))
                found.append([one for one in messages if one in far.got])
        return found

    async def work():
        first, again = await arrived("7", 2)
        assert first == again == (await arrived("7", 1))[0]
        assert first != (await arrived("8", 1))[0]

    run(work())


def test_delayed_line_takes_at_least_its_time_and_keeps_the_order():
    """Each way once."""

    async def work():
        async with lines() as (relay, _, connect):
            relay.set_rule("h1", Line.NATS, Rule(delay_ms=100))
            pair = await connect()
            clock = SystemClock()
            begun_ms = clock.monotonic_ms()
            assert await exchange(pair, b"PING\r\nPONG\r\n") == b"PING\r\nPONG\r\n"
            assert clock.monotonic_ms() - begun_ms >= 200

    run(work())


def test_object_store_answers_with_an_error_that_clients_know():
    """503 SlowDown, and nothing reaches the store."""

    async def work():
        async with lines(Line.S3) as (relay, far, connect):
            relay.set_rule("h1", Line.S3, Rule(error_share=1.0))
            reader, writer = await connect()
            writer.write(b"GET /bucket/key HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await reader.read()
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert f"Content-Length: {len(body)}".encode() in head
            assert b"<Code>SlowDown</Code>" in body
            assert (far.connections, relay.counts["refused"]) == (0, 1)

    run(work())


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (Line.NATS, Rule(drop_share=1.1)),
        (Line.NATS, Rule(delay_ms=-1)),
        (Line.PEERS, Rule(drop_share=0.5)),
        (Line.NATS, Rule(error_share=0.5)),
    ],
)
def test_rule_that_cannot_be_is_refused(line, rule):
    """Rather than doing nothing."""
    relay = Relay(clock=SystemClock(), owner=lambda _: "")
    with pytest.raises(InvalidInput):
        relay.set_rule("h1", line, rule)
