"""The channel between the agent and its host's ranks: ``run_dir/agent.sock``.

Ranks connect, say who they are and then only tell; they are asked for little (save, stop). A rank
never waits for us while it trains, and connects again when the agent is new, so a connection is
worth nothing more than what comes through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from everstep.agent import framing
from everstep.agent.exits import ExitClass
from everstep.agent.metrics import Checked, RankStep
from everstep.agent.runs import RankKey
from everstep.core.errors import CorruptData
from everstep.core.schedule import Schedule

log = logging.getLogger(__name__)

HELLO_S_MAX: Final = 10.0  # whoever connects and says nothing is not a rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who a rank is; ``step`` is its newest one when it connects again."""

    job_id: str
    generation: int
    rank: int
    pid: int
    step: int = -1

    @property
    def key(self) -> RankKey:
        """Which rank of which generation."""
        return (self.job_id, self.generation, self.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """State is there, groups are up."""

    restored_step: int
    source_kind: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBad:
    """What lies in the slot that the rank was told of is damaged; it waits for another answer."""

    slot: int
    step: int
    problem: str
    old_rank: int = -1  # whose slot it is, if the layout has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTold:
    """A completed step, and what was kept of it."""

    step: int
    step_time_ms: float
    blocked_ms: float
    data_wait_ms: float
    stall_ms: float
    loss: float
    grad_norm: float
    tokens: int
    health: str
    completed_at_ms: int
    first: bool
    snapshot_slot: int = -1
    durable: bool = False
    schedule_version: int = 0
    position: int = 0
    poisoned: bool = False
    own_ms: float = 0.0
    fingerprints: tuple[tuple[int, int], ...] = ()
    compared_step: int = 0
    verified_step: int = 0
    shadow_ms: float = 0.0
    checked: Checked | None = None

    def rank_step(self, rank: int) -> RankStep:
        """Return the part that the monitor wants."""
        return RankStep(
            rank=rank,
            step=self.step,
            step_time_ms=self.step_time_ms,
            blocked_ms=self.blocked_ms,
            data_wait_ms=self.data_wait_ms,
            stall_ms=self.stall_ms,
            loss=self.loss,
            grad_norm=self.grad_norm,
            tokens=self.tokens,
            health=self.health,
            completed_at_ms=self.completed_at_ms,
            first=self.first,
            kept=self.snapshot_slot >= 0,
            durable=self.durable,
            schedule_version=self.schedule_version,
            position=self.position,
            poisoned=self.poisoned,
            own_ms=self.own_ms,
            fingerprints=self.fingerprints,
            compared_step=self.compared_step,
            verified_step=self.verified_step,
            shadow_ms=self.shadow_ms,
            checked=self.checked,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Last words of a rank that failed."""

    exit_class: ExitClass
    error: str
    traceback: str = ""
    step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Last words of a rank that is through, or was asked to stop."""

    exit_class: ExitClass
    step: int = -1


Told = Ready | SlotBad | StepTold | Failed | Finished
_KINDS: Final[dict[str, type[Told]]] = {
    "ready": Ready,
    "slot_bad": SlotBad,
    "step": StepTold,
    "failed": Failed,
    "finished": Finished,
}


class RankEvents(Protocol):
    """Who is told."""

    def hello(self, hello: Hello) -> bool:
        """Say whether this rank is one of ours; its answer follows by ``RankChannel.send``."""

    def told(self, key: RankKey, what: Told) -> None:
        """Take what a rank says."""


class RankChannel:
    """The server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._closing = False
        self._writers: dict[RankKey, asyncio.StreamWriter] = {}
        self._closed: dict[RankKey, asyncio.Event] = {}

    async def start(self, events: RankEvents) -> None:
        """Listen; an old socket file is replaced."""
        listener = _bind(self._path)
        serve = partial(self._serve, events)
        self._server = await asyncio.start_unix_server(serve, sock=listener)

    async def close(self) -> None:
        """Stop listening and let go of every rank."""
        self._closing = True  # one that was accepted a moment ago is let go as soon as it begins
        if self._server is not None:
            self._server.close()
        for writer in self._connections:
            writer.close()

    def send(self, key: RankKey, message: dict[str, Any]) -> bool:
        """Tell a rank; False when it is not connected."""
        writer = self._writers.get(key)
        if writer is None or writer.is_closing():
            return False
        framing.write(writer, message)
        return True

    def tell_schedule(self, key: RankKey, schedule: Schedule) -> bool:
        """Tell a rank how often to snapshot; False when it is not connected."""
        return self.send(key, {"kind": "schedule", "schedule": msgspec.to_builtins(schedule)})

    def ask(self, key: RankKey, what: str) -> bool:
        """Ask a rank to ``save`` or ``stop``; False when it is not connected."""
        return self.send(key, {"kind": "request", "what": what})

    async def drained(self, key: RankKey, timeout_s: float) -> None:
        """Return when all that a dead rank said has been taken, or after ``timeout_s``."""
        closed = self._closed.get(key)
        if closed is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), timeout_s)

    async def _serve(
        self, events: RankEvents, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._connections.add(writer)
        try:
            if self._closing:
                return
            hello = await self._greet(reader)
            if hello is None or self._closing:
                return
            await self._listen(events, hello, reader, writer)
        except (OSError, CorruptData, msgspec.ValidationError, TimeoutError) as error:
            log.info("rank connection ended: %s", error)
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader) -> Hello | None:
        frame = await asyncio.wait_for(framing.read(reader), HELLO_S_MAX)
        if frame is None or frame["kind"] != "hello":
            return None
        return msgspec.convert(frame, Hello)

    async def _listen(
        self,
        events: RankEvents,
        hello: Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        key = hello.key
        closed = asyncio.Event()
        self._writers[key] = writer
        self._closed[key] = closed
        try:
            if not events.hello(hello):
                log.warning("rank %s is none of ours: let go", key)
                return
            while (frame := await framing.read(reader)) is not None:
                kind = _KINDS.get(frame["kind"])
                if kind is None:
                    log.warning("unknown frame %r from rank %s", frame["kind"], key)
                    continue
                events.told(key, msgspec.convert(frame, kind))
        finally:
            closed.set()
            if self._writers.get(key) is writer:
                del self._writers[key]
            if self._closed.get(key) is closed:
                del self._closed[key]


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener
