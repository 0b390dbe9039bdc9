"""What hosts and the registry said about one generation: too large for events, asked for anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from everstep.controller.outside import Fenced, Planned

# A port that was free then may be taken now, after a long wait for hosts; while a plan is asked for
# again and again it is not asked for with each.
PORT_MS_MAX: Final = 30_000


@dataclass(slots=True)
class Answers:
    """Kept by the driver of a job."""

    generation: int = 0
    fenced: dict[str, Fenced] = field(default_factory=dict)
    plan: Planned | None = None
    asked_for: set[tuple[int, int]] = field(default_factory=set)  # second copies: (step, rank)
    first: tuple[str, float] = ("", 0.0)  # who was asked for the rendezvous port, and when [ms]

    def to_ask(self, hosts: Sequence[str], now_ms: float) -> tuple[str, ...]:
        """Return which of ``hosts`` to ask before a plan; the first one's port must be fresh."""
        host, at_ms = self.first
        stale = host != hosts[0] or now_ms - at_ms > PORT_MS_MAX
        if stale:
            self.first = (hosts[0], now_ms)
        known = self.fenced
        return tuple([h for h in hosts if h not in known or (stale and h == hosts[0])])
