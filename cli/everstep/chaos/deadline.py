"""When a campaign is given up: one limit for all of its phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from everstep.core.errors import Unavailable
from everstep.core.system import Clock


class TimedOut(Unavailable):
    """The campaign took longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A limit that was set at the beginning.

    Args:
        clock: real time.
        limit_s: of the whole.
        end_ms: by the monotonic clock.
    """

    clock: Clock
    limit_s: float
    end_ms: float

    @classmethod
    def after(cls, clock: Clock, limit_s: float) -> Self:
        """Set it, from now on."""
        return cls(clock=clock, limit_s=limit_s, end_ms=clock.monotonic_ms() + limit_s * 1_000)

    @property
    def left_s(self) -> float:
        """How long there is left; 0: it has passed."""
        return max(self.end_ms - self.clock.monotonic_ms(), 0.0) / 1_000

    @property
    def passed(self) -> bool:
        """Whether there is nothing left."""
        return self.left_s == 0.0

    def require(self, doing: str) -> None:
        """Go on only while there is time.

        Raises:
            TimedOut: there is none; it says during what.
        """
        if self.passed:
            raise TimedOut(f"given up after {self.limit_s:g} s (--timeout): {doing}")
