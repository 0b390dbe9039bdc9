"""Knows which steps of a run have not been heard of, so that a curve has no holes.

Step metrics travel without a receipt: while the bus or the monitor is away they are lost. Agents
remember the last thousand; whoever finds a hole asks one of the job's hosts. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

# Hosts report a step within a fraction of a second of one another; an older hole is one.
PATIENCE_MS: Final = 1_000
# After this many questions without an answer that fills it, a hole stays: its hosts are gone.
QUESTIONS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Steps of ``job_id`` after ``after_step`` are missing; ask one of ``hosts``."""

    job_id: str
    after_step: int
    hosts: tuple[str, ...]


@dataclass(slots=True)
class _Curve:
    generation: int = 0
    covered: int = 0
    beyond: set[int] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    open_since_ms: int | None = None
    questions: int = 0
    over: bool = False


class Curves:
    """The curves of all jobs that run or have just ended."""

    def __init__(self) -> None:
        self._curves: dict[str, _Curve] = {}

    def adopt(self, job_id: str, generation: int, step: int, hosts: Iterable[str]) -> None:
        """Take up a curve of which everything up to ``step`` is kept; ``hosts`` may tell more."""
        self._curves[job_id] = _Curve(generation=generation, covered=step, hosts=set(hosts))

    def resumed(self, job_id: str, generation: int, step: int) -> None:
        """The run goes on from a step: those beyond it are made, and told, once more.

        An audit begins with one: those before are another job's.
        """
        curve = self._curves.setdefault(job_id, _Curve())
        if generation <= curve.generation:
            return  # told again
        is_first = generation == 1
        curve.generation = generation
        curve.covered = max(step, 0) if is_first else min(curve.covered, max(step, 0))
        curve.beyond.clear()
        curve.open_since_ms = None
        curve.questions = 0

    def saw(self, job_id: str, generation: int, step: int, host_id: str, now_ms: int) -> None:
        """Note a step that was told by a host; one of an older generation is made again."""
        curve = self._curves.setdefault(job_id, _Curve())
        if generation < curve.generation:
            return
        curve.hosts.add(host_id)
        self._note(curve, step, now_ms)

    def _note(self, curve: _Curve, step: int, now_ms: int) -> None:
        if step > curve.covered:
            curve.beyond.add(step)
        while curve.covered + 1 in curve.beyond:
            curve.covered += 1
            curve.beyond.discard(curve.covered)
            curve.questions = 0
        if not curve.beyond:
            curve.open_since_ms = None
        elif curve.open_since_ms is None:
            curve.open_since_ms = now_ms

    def ended(self, job_id: str, last_step: int, now_ms: int) -> None:
        """Note the run's last step: what is missing before it will not come by itself."""
        if job_id not in self._curves:
            return
        curve = self._curves[job_id]
        curve.over = True
        if last_step > curve.covered:
            # Not seen itself: one more beyond it keeps the hole open until it is told.
            self._note(curve, last_step + 1, now_ms)

    def holes(self, now_ms: int) -> list[Hole]:
        """Return holes to ask about now; gives up those that nobody could fill."""
        found = []
        for job_id in sorted(self._curves):
            curve = self._curves[job_id]
            if curve.open_since_ms is None:
                if curve.over:
                    del self._curves[job_id]
                continue
            if now_ms - curve.open_since_ms < PATIENCE_MS:
                continue
            if curve.questions >= QUESTIONS_MAX or not curve.hosts:
                self._give_up(job_id, curve)
                continue
            curve.questions += 1
            curve.open_since_ms = now_ms
            hosts = tuple(sorted(curve.hosts))
            found.append(Hole(job_id=job_id, after_step=curve.covered, hosts=hosts))
        return found

    def _give_up(self, job_id: str, curve: _Curve) -> None:
        if curve.over:
            del self._curves[job_id]
            return
        curve.covered = max(curve.beyond)
        curve.beyond.clear()
        curve.open_since_ms = None
        curve.questions = 0
