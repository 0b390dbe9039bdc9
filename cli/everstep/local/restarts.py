"""Decides how long to wait before a dead process is started again.

At once the first time, because most deaths are single and training waits; then doubling, so that a
process that cannot live does not take the machine's two cores for its attempts. A process that has
lived for a while starts with a clean record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DELAY_FIRST_MS: Final = 500  # chosen, not measured: shorter than a person's patience
DELAY_MS_MAX: Final = 15_000  # a machine that is short of memory needs about this to settle
LIVED_MS: Final = 30_000  # chosen, not measured: longer than any start-up that ends in a crash
FRUITLESS_STARTS_MAX: Final = 3  # deaths before ever being ready, after which `up` gives up


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """Deaths since the process last lived long enough."""

    in_a_row: int = 0
    never_ready: int = 0  # of them, before it was ready even once

    @property
    def hopeless(self) -> bool:
        """Whether whoever waits for the process should be told that it does not start."""
        return self.never_ready >= FRUITLESS_STARTS_MAX


def after_death(deaths: Deaths, *, lived_ms: int, was_ready: bool) -> Deaths:
    """Count one more death of a process that lived for ``lived_ms``."""
    before = Deaths() if was_ready and lived_ms >= LIVED_MS else deaths
    return Deaths(
        in_a_row=before.in_a_row + 1,
        never_ready=0 if was_ready else before.never_ready + 1,
    )


def restart_delay_ms(deaths: Deaths) -> int:
    """Return how long to wait before the next start [ms]; 0 after the first death."""
    if deaths.in_a_row <= 1:
        return 0
    doublings = min(deaths.in_a_row - 2, 10)  # 10: far beyond the limit, far below overflow
    return min(DELAY_FIRST_MS << doublings, DELAY_MS_MAX)
