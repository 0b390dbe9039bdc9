"""Where every second of the job went, kept while it runs, in memory that does not grow.

The causes are the monitor's (``everstep.monitor.ledger``) and ``straggler``; so are the rules: a
step is useful until a later generation goes on from before it, then it is lost work; what was begun
of a step when training stopped is lost work at once. Time is laid piece after piece, so the causes
sum to the wall time exactly. Stretches of training are remembered for as long as a roll-back could
reach them, each with the cadence that it was trained at.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.fleet.cadence import Cadence
from everstep.monitor.ledger import Cause

# A roll-back goes back over restarts of the last days; this many are weeks.
STRETCHES_MAX: Final = 1_000


class Slow(StrEnum):
    """What the monitor's ledger does not name: it sees steps, not how fast a host should be."""

    STRAGGLER = "straggler"


ALL_CAUSES: Final = (*(cause.value for cause in Cause), Slow.STRAGGLER.value)


@dataclass(slots=True, kw_only=True)
class _Stretch:
    """Training that is kept: steps ``first + 1`` to ``last``, and what slow hosts added to it."""

    first: int
    last: int
    slow_ms: int
    cadence: Cadence


class Ledger:
    """Adds up one job's time. All times are milliseconds since it was submitted."""

    def __init__(self, cadence: Cadence) -> None:
        self.at_ms = 0
        self.causes: dict[str, int] = dict.fromkeys(ALL_CAUSES, 0)
        self.lost_steps = 0
        self.cadence = cadence  # of the stretch that is trained now
        self._stretches: deque[_Stretch] = deque(maxlen=STRETCHES_MAX)

    def until(self, at_ms: int, cause: Cause) -> None:
        """Put the time up to ``at_ms`` under ``cause``."""
        assert at_ms >= self.at_ms, f"time goes back from {self.at_ms} to {at_ms} ms"
        self.causes[cause] += at_ms - self.at_ms
        self.at_ms = at_ms

    def trained(self, at_ms: int, *, first: int, trained_ms: int) -> int:
        """Lay a stretch of training that ends at ``at_ms``; returns the last whole step.

        Args:
            at_ms: when it stopped.
            first: the step it went on from.
            trained_ms: training time that it amounts to; the rest of the time were slow hosts.
        """
        wall_ms = at_ms - self.at_ms
        last = self.cadence.reached(first, trained_ms)
        done_ms = self.cadence.elapsed_ms(first, last)
        slow_ms = 0 if trained_ms == 0 else (wall_ms - trained_ms) * done_ms // trained_ms
        stretch = _Stretch(first=first, last=last, slow_ms=slow_ms, cadence=self.cadence)
        self._add(stretch, 1)
        self.causes[Cause.LOST_WORK] += wall_ms - done_ms - slow_ms
        self.at_ms = at_ms
        self._stretches.append(stretch)
        return last

    def resumed(self, step: int) -> None:
        """Training goes on from ``step``: whatever was done beyond it is lost."""
        while self._stretches and self._stretches[-1].last > step:
            stretch = self._stretches.pop()
            self._add(stretch, -1)
            kept = max(step, stretch.first)
            cadence = stretch.cadence
            whole_ms = cadence.elapsed_ms(stretch.first, stretch.last)
            kept_ms = cadence.elapsed_ms(stretch.first, kept)
            # Of a stretch without a step, nothing is kept: it was slow for nothing.
            slow_ms = stretch.slow_ms * kept_ms // whole_ms if whole_ms else 0
            left = _Stretch(first=stretch.first, last=kept, slow_ms=slow_ms, cadence=cadence)
            self._add(left, 1)
            lost_ms = whole_ms + stretch.slow_ms - kept_ms - left.slow_ms
            self.causes[Cause.LOST_WORK] += lost_ms
            self.lost_steps += stretch.last - kept
            if kept > stretch.first:
                self._stretches.append(left)

    def _add(self, stretch: _Stretch, sign: int) -> None:
        cadence, steps = stretch.cadence, stretch.last - stretch.first
        stalls_ms = cadence.stalls_ms(stretch.first, stretch.last)
        self.causes[Cause.USEFUL] += sign * steps * (cadence.step_ms - cadence.degraded_ms)
        self.causes[Cause.DEGRADED] += sign * steps * cadence.degraded_ms
        self.causes[Cause.CHECKPOINT_STALL] += sign * stalls_ms
        self.causes[Slow.STRAGGLER] += sign * stretch.slow_ms
