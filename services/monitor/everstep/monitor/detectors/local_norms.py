"""Says whose own gradient stands out among those of its replicas, before they are added up.

Replicas of one place in the layout have the same parameters and other samples, so their gradients
have norms of about one size. Each is compared with the median of its replicas, by logarithms; how
far they usually are from it is told by the window of the last steps, all places together. Who is
very far off may be wrong, or have a hard micro-batch: the norm alone cannot tell, so it only asks
for a recompute of the next step, and not again for a while.

Rejected: a window of each rank's own (16,384 of them, to the same end: ranks draw their samples
from one permutation), and a verdict after many outliers (an early flaw of a chip that is always the
same is in the window, too).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of
from everstep.wire.v1.agents_pb2 import RankStep

SCALE: Final = 1.4826  # of a normal distribution's median absolute deviation to its deviation
# Beyond it lies one of 10**15 normal points; gradients have heavier tails than that, and a needless
# recompute costs a step.
Z_MAX: Final = 8.0
SIGMA_MIN: Final = 0.05  # of a logarithm: large micro-batches differ by less, and 8 of it is 50 %
WINDOW_STEPS: Final = 64
WINDOW_STEPS_MIN: Final = 16  # before that nobody stands out
# Between two suspicions, so that a rank that stands out for ever costs 1 % at most.
AGAIN_STEPS: Final = 100
LATE_STEPS: Final = 2  # as recompute_course has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A rank whose gradient's norm is ``z`` robust deviations off at ``step``."""

    rank: int
    step: int
    z: float
    reason: str


class NormCourse:
    """One generation of one job.

    Args:
        generation: whose steps count.
        layout: of the job.
    """

    def __init__(self, generation: int, layout: Layout) -> None:
        self.generation = generation
        self._layout = layout
        self._told: dict[int, dict[int, float]] = {}
        self._taken = 0
        self._scatter: deque[float] = deque(maxlen=WINDOW_STEPS)  # of each step
        self._quiet_until = 0

    def told(self, generation: int, steps: Iterable[RankStep]) -> list[Suspicion]:
        """Take one host's message; returns at most one suspicion a step."""
        if generation != self.generation:
            return []
        for step in steps:
            norm = step.checked.local_norm
            if step.step > self._taken and norm > 0 and math.isfinite(norm):
                self._told.setdefault(step.step, {})[step.rank] = math.log(norm)
        found: list[Suspicion] = []
        while self._told:
            first = min(self._told)
            whole = len(self._told[first]) == self._layout.world_size
            if not whole and max(self._told) - first < LATE_STEPS:
                break
            self._taken = first
            found += self._look(first, self._told.pop(first))
        return found

    def _look(self, step: int, norms: Mapping[int, float]) -> list[Suspicion]:
        places = {rank: _place(rank, self._layout) for rank in sorted(norms)}
        by_place: dict[tuple[int, int], list[float]] = {}
        for rank, place in places.items():
            by_place.setdefault(place, []).append(norms[rank])
        middles = {place: median(found) for place, found in by_place.items()}
        off = {rank: norms[rank] - middles[place] for rank, place in places.items()}
        rank = max(off, key=lambda one: (abs(off[one]), -one))
        usual = SCALE * median(self._scatter) if self._scatter else 0.0
        z = abs(off[rank]) / max(usual, SIGMA_MIN)
        known = len(self._scatter) >= WINDOW_STEPS_MIN
        self._scatter.append(median(abs(one) for one in off.values()))
        if not known or z <= Z_MAX or step < self._quiet_until:
            return []
        self._quiet_until = step + AGAIN_STEPS
        return [
            Suspicion(
                rank=rank,
                step=step,
                z=z,
                reason=f"in step {step} the gradient of rank {rank}, before it was added up, had a "
                f"norm {math.exp(off[rank]):.3g} times the median of its replicas, {z:.1f} robust "
                "deviations off",
            )
        ]


def _place(rank: int, layout: Layout) -> tuple[int, int]:
    at = coordinate_of(layout, rank)
    return at.pp, at.tp
