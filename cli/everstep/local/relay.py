"""A network between the hosts of a stack that can be made to fail: a TCP relay in the supervisor.

Only in a stack that was started for chaos do agents reach NATS, the object store and each other
through ports of the relay. A line is held (nothing passes and nobody is told, as when packets are
lost; what was sent arrives when it is let go), cut (connections end, new ones end at once), or
slow; of what an agent publishes, messages can be left out or sent twice; the object store can
answer with errors. What runs between two hosts obeys the rules of both.

The relay stands between agents and whatever they talk to; collectives of ranks do not pass it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.core.system import Clock
from everstep.faults.chance import seeded
from everstep.local.nats_frames import FrameCutter

HOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 256 * 1024  # large enough for snapshots, which pass by
PIECES_MAX: Final = 64  # that wait for their time on one side of a connection
CONNECT_TIMEOUT_S: Final = 5.0
# What S3 answers when it is asked too much: clients ask again.
BUSY_BODY: Final = b"<Error><Code>SlowDown</Code><Message>injected by chaos</Message></Error>"
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BUSY_BODY), BUSY_BODY)
)


class Line(StrEnum):
    """What an agent's connections lead to."""

    NATS = "nats"
    PEERS = "peers"
    S3 = "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a line behaves; the default is as if it were not there.

    Args:
        held: nothing passes, nobody is told.
        cut: connections end, new ones at once.
        delay_ms: that everything takes longer, each way.
        drop_share: of published messages that never arrive (NATS).
        duplicate_share: of published messages that arrive twice (NATS).
        error_share: of requests that are answered with an error (S3).
        seed: of which ones those are: the same again whenever the rule is set.
    """

    held: bool = False
    cut: bool = False
    delay_ms: int = 0
    drop_share: float = 0.0
    duplicate_share: float = 0.0
    error_share: float = 0.0
    seed: str = ""


SOUND: Final = Rule()
Owner = Callable[[int], str]  # which host has the connection whose local port this is; "" if none


@dataclass(slots=True, kw_only=True, eq=False)
class _Passage:
    """A connection through the relay, and the hosts whose rules it obeys."""

    line: Line
    hosts: tuple[str, ...]
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def end(self) -> None:
        """End both sides."""
        for writer in self.writers:
            writer.transport.abort()


class Relay:
    """The listeners of all hosts, and what is to go wrong.

    Args:
        clock: for delays.
        owner: finds whose connection one between hosts is.
    """

    def __init__(self, *, clock: Clock, owner: Owner) -> None:
        self._clock = clock
        self._chances: dict[tuple[str, Line], random.Random] = {}  # of each line with a rule
        self._owner = owner
        self._rules: dict[tuple[str, Line], Rule] = {}
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._passages: set[_Passage] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: dict[str, int] = {"dropped": 0, "duplicated": 0, "refused": 0}

    async def open(self, host_id: str, line: Line, target: int) -> int:
        """Listen for one line of a host, on the way to a port; returns the port to be told."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None, "asyncio runs it as one"
            self._tasks.add(task)
            try:
                await self._pass(host_id, line, target, reader, writer)
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(accept, HOST, 0, limit=PIECE_BYTES)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def rule(self, host_id: str, line: Line) -> Rule:
        """Return how a line behaves."""
        return self._rules.get((host_id, line), SOUND)

    def set_rule(self, host_id: str, line: Line, rule: Rule) -> None:
        """Let a line of a host behave in another way from now on.

        Raises:
            InvalidInput: shares are no shares, or the line has no such messages.
        """
        shares = (rule.drop_share, rule.duplicate_share, rule.error_share)
        if not all(0 <= share <= 1 for share in shares) or rule.delay_ms < 0:
            raise InvalidInput(f"shares lie between 0 and 1 and delays are not negative: {rule}")
        if (rule.drop_share or rule.duplicate_share) and line is not Line.NATS:
            raise InvalidInput(f"only on the line to NATS are there messages, not on {line}")
        if rule.error_share and line is not Line.S3:
            raise InvalidInput(f"only the object store can be made to refuse, not {line}")
        self._rules[host_id, line] = rule
        self._chances[host_id, line] = seeded(rule.seed)
        for passage in list(self._passages):
            concerned = passage.line is line and host_id in passage.hosts
            if concerned and (rule.cut or rule.error_share):
                passage.end()
        self._changed.set()
        self._changed = asyncio.Event()

    def heal(self) -> None:
        """Let everything pass again."""
        for host_id, line in list(self._rules):
            self.set_rule(host_id, line, SOUND)

    def broken(self) -> Mapping[tuple[str, Line], Rule]:
        """Return the lines that are not as they should be."""
        return {which: rule for which, rule in self._rules.items() if rule != SOUND}

    async def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for passage in list(self._passages):
            passage.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(
        self,
        host_id: str,
        line: Line,
        target: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        hosts: tuple[str, ...] = (host_id,)
        if line is Line.PEERS:
            port = int(writer.get_extra_info("peername")[1])
            other = await asyncio.to_thread(self._owner, port)  # looks through /proc
            hosts = (host_id, other) if other else hosts
        passage = _Passage(line=line, hosts=hosts, writers=[writer])
        self._passages.add(passage)
        try:
            await self._until_let(passage)
            if await self._refused(passage, reader, writer):
                return
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                back, forth = await asyncio.open_connection(HOST, target, limit=PIECE_BYTES)
            passage.writers.append(forth)
            await self._both_ways(passage, (reader, forth), (back, writer))
        except OSError:
            pass  # one of the two has gone, or the target is away: so has the other
        finally:
            passage.end()
            self._passages.discard(passage)

    async def _both_ways(
        self,
        passage: _Passage,
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        cutter = FrameCutter() if passage.line is Line.NATS else None
        ways = {
            asyncio.create_task(self._pump(passage, *there, cutter)),
            asyncio.create_task(self._pump(passage, *back, None)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(
        self,
        passage: _Passage,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        cutter: FrameCutter | None,
    ) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_MAX)
        sending = asyncio.create_task(self._send(passage, waiting, writer))
        try:
            while not sending.done() and (piece := await reader.read(PIECE_BYTES)):
                data = piece if cutter is None else self._published(passage, cutter, piece)
                due_ms = self._clock.monotonic_ms() + self._delay_ms(passage)
                await waiting.put((due_ms, data))
            await waiting.put((0.0, b""))
            await sending
        finally:
            sending.cancel()

    async def _send(
        self,
        passage: _Passage,
        waiting: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            due_ms, data = await waiting.get()
            early_ms = due_ms - self._clock.monotonic_ms()
            if early_ms > 0:
                await asyncio.sleep(early_ms / 1_000)
            await self._until_let(passage)
            if not due_ms:
                return
            writer.write(data)
            await writer.drain()

    def _published(self, passage: _Passage, cutter: FrameCutter, piece: bytes) -> bytes:
        rule = self.rule(passage.hosts[0], passage.line)
        kept: list[bytes] = []
        for frame in cutter.feed(piece):
            copies = 1
            if frame.is_published and (rule.drop_share or rule.duplicate_share):
                drawn = self._chances[passage.hosts[0], passage.line].random()
                if drawn < rule.drop_share:
                    copies = 0
                    self.counts["dropped"] += 1
                elif drawn < rule.drop_share + rule.duplicate_share:
                    copies = 2
                    self.counts["duplicated"] += 1
            kept += [frame.data] * copies
        return b"".join(kept)

    async def _refused(
        self, passage: _Passage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer with an error, or with nothing, if that is the rule."""
        rules = [self.rule(host_id, passage.line) for host_id in passage.hosts]
        if any(rule.cut for rule in rules):
            return True
        share = max(rule.error_share for rule in rules)
        if not share or self._chances[passage.hosts[0], passage.line].random() >= share:
            return False
        self.counts["refused"] += 1
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(BUSY)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        return True

    def _delay_ms(self, passage: _Passage) -> int:
        return max(self.rule(host_id, passage.line).delay_ms for host_id in passage.hosts)

    async def _until_let(self, passage: _Passage) -> None:
        while any(self.rule(host_id, passage.line).held for host_id in passage.hosts):
            await self._changed.wait()
