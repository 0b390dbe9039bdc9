"""Which snapshots belong to the job's present history.

Generation g that was planned from step s goes on from s: whatever an older generation did after s
is abandoned. After a rollback the same step number is done again, perhaps with other batches, so a
step number alone names no state. A snapshot of generation h at step t is of the present history if
and only if t <= s for every later planned generation; two of them at one step are then the same
state, because the later one can only have started from it.

A plan binds even if its generation never made a step: what it passed over was told to be lost, and
nobody has to know how far a dead generation came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NO_CEILING: Final = 2**63 - 1  # above every int64 step


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Generation ``generation`` went on from ``step`` (-1: from nothing)."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The planned restarts of a job, by generation, and the ceiling that each lays on older ones.

    ``ceilings[i]`` is the smallest step of ``restarts[i:]``.
    """

    restarts: tuple[Restart, ...] = ()
    ceilings: tuple[int, ...] = ()

    def ceiling(self, generation: int) -> int:
        """Return the newest step of ``generation`` that is still part of the history."""
        i = bisect_right(self.restarts, generation, key=lambda restart: restart.generation)
        return self.ceilings[i] if i < len(self.ceilings) else NO_CEILING

    def kept_to(self, generation: int) -> int:
        """Return the newest step of ``generation`` that later ones went on from; -1 for none."""
        ceiling = self.ceiling(generation)
        return ceiling if ceiling != NO_CEILING else -1

    def holds(self, *, generation: int, step: int) -> bool:
        """Say whether a snapshot of ``generation`` at ``step`` is part of the history."""
        return step <= self.ceiling(generation)

    def abandoned_by(self, *, generation: int, step: int) -> Restart | None:
        """Return the first restart that left this snapshot behind."""
        later = (restart for restart in self.restarts if restart.generation > generation)
        return next((restart for restart in later if step > restart.step), None)


def lineage_of(restarts: Iterable[Restart]) -> Lineage:
    """Sort the restarts and work out their ceilings; one restart for each generation."""
    ordered = tuple(sorted(restarts, key=lambda restart: restart.generation))
    ceilings: list[int] = []
    lowest = NO_CEILING
    for restart in reversed(ordered):
        lowest = min(lowest, restart.step)
        ceilings.append(lowest)
    return Lineage(restarts=ordered, ceilings=tuple(reversed(ceilings)))
