"""Counts what goes wrong on this host, from what its kernel and drivers count.

Counters of hardware begin anywhere and may begin anew: only growth since the first look of this
boot is told, as totals, so that a heartbeat that is lost loses nothing. Totals survive the agent in
``counters.json``: what went wrong while it was away is counted by the next one. A state (a disk
that is read-only) counts once whenever it begins, and at the first look if it holds already.

Rejected: telling growth alone (heartbeats may be lost); reading the kernel's log (needs rights, and
its text changes from driver to driver).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from everstep.core.errors import EverstepError
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.service.commands import send_command
from everstep.wire.v1.agents_pb2 import ErrorCount
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.hosts_pb2 import CountErrors

log = logging.getLogger(__name__)

# A look costs some dozens of small reads. Heartbeats come every second, but a host that is about to
# fail counts for minutes; and a probe, the first sign of a failure, looks at once.
LOOK_S: Final = 5.0
LOOK_S_MAX: Final = 0.1  # of a probe's 0.4 s: a driver that hangs must not make the host look dead
# The inventory stores an event for each report; what is urgent is in the heartbeats.
REPORT_S: Final = 60.0
REPORT_S_MAX: Final = 2.0
# One host's heartbeat stays small whatever its hardware has; the largest counts are told.
TOLD_MAX: Final = 64

Key = tuple[str, str]  # kind, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a source shows now.

    ``value`` is a counter's, which only grows unless it begins anew; of a state 0 or 1. ``events``
    says that it is neither, but what has happened since the last look.
    """

    kind: str
    part: str
    value: int
    state: bool = False
    events: bool = False


class Source(Protocol):
    """Where counters are read."""

    def read(self) -> Iterable[Count]:
        """Return all of them, quickly; what is not there is left out."""


@dataclass(slots=True)
class Totals:
    """What has grown since the first look."""

    totals: dict[Key, int] = field(default_factory=dict)
    grew_ms: dict[Key, float] = field(default_factory=dict)
    seen: dict[Key, int] = field(default_factory=dict)

    def take(self, counts: Iterable[Count], now_ms: float) -> dict[Key, int]:
        """Take a look; returns what has grown by how much."""
        grown = {}
        for count in counts:
            key = (count.kind, count.part)
            growth = count.value if count.events else self._growth(key, count)
            if growth > 0:
                grown[key] = growth
                self.totals[key] = self.totals.get(key, 0) + growth
                self.grew_ms[key] = now_ms
        return grown

    def _growth(self, key: Key, count: Count) -> int:
        before = self.seen.get(key)
        self.seen[key] = count.value
        if before is None:
            return count.value if count.state else 0
        # Smaller than before: a driver that was loaded again counts from zero.
        return count.value - before if count.value >= before or count.state else count.value

    def dump(self, boot_id: str) -> str:
        """Return it as text, for the next agent of the same boot."""
        rows = [
            [kind, part, self.seen.get((kind, part), -1), self.totals.get((kind, part), 0)]
            for kind, part in sorted(self.seen.keys() | self.totals.keys())
        ]
        return json.dumps({"boot_id": boot_id, "counts": rows})

    @classmethod
    def load(cls, text: str, boot_id: str, now_ms: float) -> Totals:
        """Return what an earlier agent of this boot has left; what cannot be read is nothing."""
        found = cls()
        with contextlib.suppress(ValueError, KeyError, TypeError):
            left = json.loads(text)
            if left["boot_id"] == boot_id:
                for kind, part, seen, total in left["counts"]:
                    key = (str(kind), str(part))
                    if seen >= 0:
                        found.seen[key] = int(seen)
                    if total:
                        found.totals[key], found.grew_ms[key] = int(total), now_ms
        return found


class Counters:
    """This host's, read again and again."""

    def __init__(
        self,
        sources: Sequence[Source],
        path: Path,
        boot_id: str,
        clock: Clock,
        executor: Executor,
        is_synchronised: Callable[[], bool],
    ) -> None:
        self._sources = sources
        self._path = path
        self._boot_id = boot_id
        self._clock = clock
        self._executor = executor
        self._is_synchronised = is_synchronised
        self._looking: asyncio.Future[None] | None = None
        text = path.read_text() if path.exists() else ""
        # Old growth is told as old: an hour is beyond whatever anybody still acts upon.
        self._totals = Totals.load(text, boot_id, clock.monotonic_ms() - 3_600_000)
        self._unreported: dict[str, int] = {}
        self._sent: dict[str, CountErrors] = {}  # and not answered yet
        self.clock_unsynchronised = False

    def told(self) -> list[ErrorCount]:
        """Return all totals that are not zero, the largest ones of each if there are many."""
        now_ms, totals = self._clock.monotonic_ms(), self._totals
        newest = sorted(totals.totals, key=lambda key: (-totals.grew_ms[key], key))[:TOLD_MAX]
        return [
            ErrorCount(
                kind=kind,
                part=part,
                count=totals.totals[kind, part],
                age_ms=round(now_ms - totals.grew_ms[kind, part]),
            )
            for kind, part in sorted(newest)
        ]

    async def look(self) -> None:
        """Read every source once; one look at a time."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    async def fresh(self) -> list[ErrorCount]:
        """Look, but wait no longer than a probe may; then return what is known."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S_MAX):
                await self.look()
        return self.told()

    async def keep_looking(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def keep_reporting(self, bus: Bus, host_id: str) -> None:
        """Tell the inventory what has been counted, for ever; nothing is told twice."""
        while True:
            await asyncio.sleep(REPORT_S)
            for kind in sorted(self._unreported.keys() | self._sent.keys()):
                await self._report(bus, host_id, kind)

    async def _report(self, bus: Bus, host_id: str, kind: str) -> None:
        if kind not in self._sent:
            count = self._unreported.pop(kind)
            at_ms = self._clock.now_ms()
            self._sent[kind] = CountErrors(host_id=host_id, kind=kind, count=count, at_ms=at_ms)
        command = self._sent[kind]  # the same one again: its time tells that it is no new one
        try:
            await send_command(bus, "host_inventory", command, CommandReply, timeout_s=REPORT_S_MAX)
        except EverstepError as error:
            log.info("errors are counted later: %s", error)
            return
        del self._sent[kind]

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        counts, synchronised = await loop.run_in_executor(self._executor, self._read)
        known = bool(self._totals.seen)
        grown = self._totals.take(counts, self._clock.monotonic_ms())
        self.clock_unsynchronised = not synchronised
        for (kind, part), growth in grown.items():
            self._unreported[kind] = self._unreported.get(kind, 0) + growth
            log.warning("%s %s: %d more", kind, part, growth)
        if grown or not known:
            text = self._totals.dump(self._boot_id)
            await loop.run_in_executor(self._executor, self._save, text)

    def _read(self) -> tuple[list[Count], bool]:
        counts = [count for source in self._sources for count in source.read()]
        return counts, self._is_synchronised()

    def _save(self, text: str) -> None:
        new = self._path.with_suffix(".new")
        try:
            new.write_text(text)
            new.replace(self._path)
        except OSError as error:  # the disk may be what is broken
            log.warning("counters are not kept over a restart of the agent: %s", error)

    def _looked(self, _: asyncio.Future[None]) -> None:
        self._looking = None
