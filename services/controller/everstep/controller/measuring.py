"""Measures what steps, snapshots and uploads of one job take, from what its ranks tell.

A rank tells how long each step stood still for snapshots. With copies beside the next pass, what a
snapshot of step s costs shows in two steps: what is copied at once in s, and the rest that had to
be waited for in s + 1. So a snapshot's cost is the stall of both, less what the other snapshots in
them usually cost. Medians, because a step that the machine was busy in says nothing of the next.

Measurements are no decisions: they are kept here only, and a new controller measures anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from everstep.controller.commands import Measured
from everstep.wire.v1.agents_pb2 import StepMetrics

# Enough for a median that does not jump, and the last minutes of a run of one-second steps.
STEPS_MAX: Final = 128
SNAPSHOTS_MAX: Final = 64
# Object saves are rare: the last eight are minutes to hours, and one slow upload is not the median.
OBJECT_SAVES_MAX: Final = 8
# Uploads under way, of which the end is not known: one at a time; more were given up.
UPLOADS_OPEN_MAX: Final = 8
# Hosts tell of a step within milliseconds of one another, and within one step at worst.
STEPS_OPEN_MAX: Final = 4


@dataclass(slots=True)
class _Step:
    """One step, over all ranks that told of it: the slowest of them."""

    took_ms: float = 0.0
    stall_ms: float = 0.0
    kept: bool = False
    durable: bool = False
    first: bool = False


class Measurements:
    """One job's."""

    def __init__(self) -> None:
        self.step = 0
        self._generation = 0
        self._open: dict[int, _Step] = {}
        self._work_ms: deque[float] = deque(maxlen=STEPS_MAX)
        self._memory_ms: deque[float] = deque(maxlen=SNAPSHOTS_MAX)
        self._object_ms: deque[float] = deque(maxlen=OBJECT_SAVES_MAX)
        self._upload_ms: deque[float] = deque(maxlen=OBJECT_SAVES_MAX)
        self._uploading: dict[int, int] = {}  # step -> when its snapshot was told of

    def heard(self, metrics: StepMetrics, now_ms: int) -> None:
        """Take one host's message; one of an older generation tells nothing."""
        if metrics.generation < self._generation:
            return
        if metrics.generation > self._generation:
            self._generation = metrics.generation
            self._open.clear()
            self._uploading.clear()
            self.step = 0  # it may go on from an earlier one
        for rank in metrics.ranks:
            step = self._open.setdefault(rank.step, _Step())
            step.took_ms = max(step.took_ms, rank.step_time_ms)
            step.stall_ms = max(step.stall_ms, rank.stall_ms)
            step.kept |= rank.kept
            step.durable |= rank.durable
            step.first |= rank.first
            self.step = max(self.step, rank.step)
            if rank.durable and rank.step not in self._uploading:
                self._uploading[rank.step] = now_ms
        while len(self._uploading) > UPLOADS_OPEN_MAX:
            del self._uploading[min(self._uploading)]
        while len(self._open) > STEPS_OPEN_MAX:
            self._settle(min(self._open))

    def completed(self, step: int, at_ms: int) -> None:
        """A checkpoint is complete."""
        begun_ms = self._uploading.pop(step, None)
        if begun_ms is not None and at_ms > begun_ms:
            self._upload_ms.append(at_ms - begun_ms)

    def measured(self) -> Measured:
        """Return what is known by now."""
        return Measured(
            step=self.step,
            step_us=_middle_us(self._work_ms),
            steps_count=len(self._work_ms),
            memory_stall_us=_middle_us(self._memory_ms),
            memory_count=len(self._memory_ms),
            object_stall_us=_middle_us(self._object_ms),
            object_count=len(self._object_ms),
            upload_ms=_middle_us(self._upload_ms) // 1_000,
            upload_ms_max=round(max(self._upload_ms, default=0)),
            upload_count=len(self._upload_ms),
        )

    def _settle(self, oldest: int) -> None:
        """Learn from the step after the oldest, whose neighbours are known, and drop the oldest."""
        before = self._open.pop(oldest)
        one, after = self._open.get(oldest + 1), self._open.get(oldest + 2)
        if one is None or after is None or one.first or before.first:
            return
        self._work_ms.append(max(one.took_ms - one.stall_ms, 0.0))
        if one.durable and not before.durable and not after.durable:
            usual_ms = _middle_us(self._memory_ms) / 1e3
            share = one.kept + 0.5 * (before.kept + after.kept)
            stalls_ms = one.stall_ms + after.stall_ms
            self._object_ms.append(max(stalls_ms - share * usual_ms, 0.0))
        elif one.kept and not before.durable and not after.durable:
            if before.kept:  # its rest, and the beginning of this one: as much as one snapshot
                self._memory_ms.append(one.stall_ms)
            elif not after.kept:
                self._memory_ms.append(one.stall_ms + after.stall_ms)


def _middle_us(values_ms: Iterable[float]) -> int:
    found = list(values_ms)
    return round(median(found) * 1e3) if found else 0
