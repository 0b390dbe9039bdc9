"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ManualClock:
    """Implements ``core.system.Clock``."""

    at_ms: int = 1_700_000_000_123

    def now_ms(self) -> int:
        """Return the time it was set to."""
        return self.at_ms

    def monotonic_ms(self) -> float:
        """Return the same."""
        return float(self.at_ms)

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self.at_ms += by_ms
