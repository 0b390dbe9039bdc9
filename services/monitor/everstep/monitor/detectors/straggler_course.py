"""Gathers the own times of one job's ranks, step by step, and has every full window judged.

Hosts tell of a step in messages of their own, which may be late, told twice or lost. So a step is
taken when all ranks have told of it, or when the run has gone on for ``LATE_STEPS`` more: then
without those that are missing. A step is taken once, in order, and what comes later is ignored. A
new generation begins with an empty window: other hosts, other times.

A rank costs 37 numbers of 8 bytes (5 steps and 32 parts), whatever the run's length: 4.8 MB for
16,384 ranks; where steps take less than half a second, parts have more of them. What time it takes
is measured by benchmarks/stragglers.py.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from everstep.monitor.detectors.straggler import (
    UNKNOWN,
    Crew,
    Judgement,
    Limits,
    Part,
    judge,
    middle,
    relative,
)

# Hosts tell within a fraction of a second of one another, and agents hold a step back for a slow
# rank for 0.2 s: less than this many steps, but for the fastest of tiny runs.
LATE_STEPS: Final = 4


class OwnStep(Protocol):
    """What is read of a ``RankStep``."""

    @property
    def rank(self) -> int:
        """Who."""
        ...

    @property
    def step(self) -> int:
        """Completed steps."""
        ...

    @property
    def own_ms(self) -> float:
        """Of it, not spent on waiting for others; 0 of an agent that does not tell."""
        ...

    @property
    def step_time_ms(self) -> float:
        """All of it."""
        ...

    @property
    def first(self) -> bool:
        """Whether it is the first one of its generation: it warms up, and is not compared."""
        ...


class StragglerCourse:
    """One generation of one job.

    Args:
        generation: whose steps count.
        crew: who does the same work, and where.
        limits: when a rank counts as slow.
    """

    def __init__(self, generation: int, crew: Crew, limits: Limits) -> None:
        self.generation = generation
        self._crew = crew
        self._limits = limits
        self._pending: dict[int, dict[int, float]] = {}  # step -> rank -> own time
        self._taken = 0  # the newest step that was taken
        self._pending_ms: dict[int, float] = {}  # step -> what it took
        self._steps: list[array[float]] = []  # of the part that is under way
        self._part_ms = 0.0
        self._part_from = 0
        sizes = [window.parts for window in limits.windows]
        self._parts_min = min(sizes)
        self._parts: deque[Part] = deque(maxlen=max(sizes))
        self._once_even: set[int] = set()
        # Half of the smallest excess that names a rank: nearer to even than to slow.
        self._uneven_min = (min(window.ratio_min for window in limits.windows) - 1) / 2

    def told(self, generation: int, steps: Iterable[OwnStep]) -> list[Judgement]:
        """Take one host's message; returns what the windows say that it completes, oldest first."""
        if generation != self.generation:
            return []
        for step in steps:
            if step.step > self._taken and 0 <= step.rank < len(self._crew.hosts):
                own_ms = UNKNOWN if step.first or step.own_ms <= 0 else step.own_ms
                self._pending.setdefault(step.step, {}).setdefault(step.rank, own_ms)
                took_ms = max(self._pending_ms.get(step.step, 0.0), step.step_time_ms)
                self._pending_ms[step.step] = took_ms
        return list(self._judgements())

    def _judgements(self) -> Iterator[Judgement]:
        while self._pending:
            first = min(self._pending)
            whole = len(self._pending[first]) == len(self._crew.hosts)
            if not whole and max(self._pending) - first < LATE_STEPS:
                return
            self._take(first, self._pending.pop(first), self._pending_ms.pop(first))
            enough = len(self._steps) >= self._limits.part_steps
            if enough and self._part_ms >= self._limits.part_ms_min:
                self._end_part()
                if len(self._parts) >= self._parts_min:
                    yield self._judge()

    def _take(self, step: int, told: dict[int, float], took_ms: float) -> None:
        self._taken = step
        if not any(own_ms > 0 for own_ms in told.values()):
            return  # a first step, or agents that do not tell
        if not self._steps:
            self._part_from = step
        self._part_ms += took_ms
        own_ms = [told.get(rank, UNKNOWN) for rank in range(len(self._crew.hosts))]
        self._steps.append(array("d", relative(own_ms, self._crew)))

    def _end_part(self) -> None:
        ratios = array("d", middle(self._steps))
        self._steps.clear()
        self._part_ms = 0.0
        self._parts.append(Part(first_step=self._part_from, last_step=self._taken, ratios=ratios))

    def _judge(self) -> Judgement:
        judgement = judge(tuple(self._parts), self._crew, self._limits, self._once_even)
        self._once_even |= {
            rank for rank, ratio in enumerate(judgement.ratios) if abs(ratio - 1) < self._uneven_min
        }
        return judgement
