"""Looks on: the trace, the counts, and what must hold after every event.

Invariants: generations follow one another one by one; no host has two seats, and none that is
cordoned is given one; nothing is restored from a checkpoint that is not complete, or from memory in
which it does not lie; the causes in the ledger sum to the time that has passed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, TextIO

from everstep.checkpoint_registry import events as checkpoints
from everstep.controller import events as jobs
from everstep.core.ports import StoredEvent
from everstep.fleet.copies import Copies
from everstep.fleet.ledger import Ledger
from everstep.host_inventory import events as hosts
from everstep.monitor import events as incidents


class BrokenInvariantError(AssertionError):
    """Something has happened that must never happen."""


class Observer:
    """Takes every event before anybody acts on it. Times are milliseconds since the start."""

    def __init__(
        self, ledger: Ledger, copies: Copies, now_ms: Callable[[], int], out: TextIO | None
    ) -> None:
        """``out`` gets the trace, line by line."""
        self.counts: Counter[str] = Counter()
        self.generation = 0
        self.incidents_open: set[str] = set()
        self.stored_ranks = 0  # that the newest plan takes from the object store
        self._ledger = ledger
        self._copies = copies
        self._now_ms = now_ms
        self._out = out
        self._digest = hashlib.sha256()
        self._cordoned: set[str] = set()

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the trace."""
        return self._digest.hexdigest()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self._now_ms()} {text}\n"
        self._digest.update(line.encode())
        if self._out is not None:
            self._out.write(line)

    def see(self, stored: StoredEvent) -> None:
        """Note an event and check what must hold."""
        event = stored.data["event"]
        if not isinstance(event, checkpoints.RestoreLaidOut):
            self.note(f"{stored.stream} {stored.version} {_told(event)}")
        self.counts[type(event).__name__] += 1
        match event:
            case jobs.GenerationBegun():
                self._check(
                    event.generation == self.generation + 1,
                    f"generation {event.generation} follows {self.generation}",
                )
                self.generation = event.generation
            case hosts.HostCordoned():
                self._cordoned.add(event.host_id)
            case hosts.HostUncordoned():
                self._cordoned.discard(event.host_id)
            case hosts.JobPlaced():
                self._placed(event)
            case checkpoints.RestoreLaidOut():
                self._laid_out(event)
            case checkpoints.RestorePlanned():
                self.stored_ranks = event.object_store
                self.counts["restores_from_store"] += event.object_store > 0
            case incidents.IncidentOpened():
                self.incidents_open.add(event.incident_id)
                self.counts[f"incident_{event.kind}"] += 1
            case incidents.IncidentRecovered() | incidents.IncidentClosed():
                self.incidents_open.discard(event.incident_id)
        total = sum(self._ledger.causes.values())
        self._check(
            total == self._ledger.at_ms,
            f"the causes sum to {total} ms and {self._ledger.at_ms} ms have passed",
        )

    def _placed(self, event: hosts.JobPlaced) -> None:
        placement = event.placement
        self._check(len(placement.host_set) == len(placement.hosts), "a host has two seats")
        bad = self._cordoned & placement.host_set
        self._check(not bad, f"cordoned hosts are placed: {sorted(bad)}")

    def _laid_out(self, event: checkpoints.RestoreLaidOut) -> None:
        if event.step < 0:
            return
        there = {
            "a complete checkpoint": {
                stored.step for stored in self._copies.stored if event.shards
            },
            "memory": {
                written.step
                for written in (*self._copies.own, *self._copies.replicas)
                if event.holders
            },
        }
        self._check(
            any(event.step in steps for steps in there.values()),
            f"generation {event.generation} goes on from step {event.step}, which is in no "
            f"{' and in no '.join(there)}",
        )

    def _check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise BrokenInvariantError(f"{self._now_ms()} ms: {otherwise}")


_TOLD = (
    "host_id", "generation", "cause", "kind", "action", "hosts", "lost_hosts", "unsound_hosts",
    "replacements", "unreachable", "missing", "step", "from_step", "own_memory", "peer_memory",
    "object_store", "lost_steps", "reason", "why", "mark",
)  # fmt: skip
_NAMED_MAX = 8  # hosts in one line: a placement has thousands


@cache
def _told_of(kind: type) -> tuple[str, ...]:
    """Return what is told of this kind of event."""
    return tuple(name for name in _TOLD if hasattr(kind, name))


def _told(event: Any) -> str:
    """Write an event as one line, without what is long."""
    parts = [type(event).__name__]
    for name in _told_of(event.__class__):
        value = getattr(event, name)
        if value is None or value in ("", ()):
            continue
        if isinstance(value, tuple):
            some = ",".join(getattr(item, "host_id", str(item)) for item in value[:_NAMED_MAX])
            more = f"+{len(value) - _NAMED_MAX}" if len(value) > _NAMED_MAX else ""
            parts.append(f"{name}={some}{more}")
        else:
            parts.append(f"{name}={value}")
    return " ".join(parts)
