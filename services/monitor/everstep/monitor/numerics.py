"""Puts a run's steps together from what its hosts tell, and follows its loss and gradient.

Every host tells of every step: loss and norm are the same everywhere, but whose gradient was not
finite each host knows of its own ranks only. So a step is looked at when all hosts have told of
it, or when one has gone on and is ``LATE_STEPS`` further: a message that was lost must not stop us.
What is told again later (``repair.py``) is not judged, but later steps are measured against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from everstep.core.record import changed
from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.spike import (
    Course,
    Found,
    Point,
    Settled,
    Sound,
    filled,
    follow,
    resumed,
)
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import NO_RULES, NumericsRules
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

# Hosts tell of a step within a fraction of a second of one another (measured: agents gather for
# 50 ms); a verdict that takes two more steps is still early against the three it waits for.
LATE_STEPS: Final = 2
HEALTH_SKIPPED: Final = "skipped_non_finite"


@dataclass(slots=True)
class _Told:
    """One step, as far as it has been told; what is read of ``first`` all ranks tell alike."""

    first: RankStep
    slowest_ms: float = 0.0
    hosts: set[str] = field(default_factory=set)
    poisoned: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Numerics:
    """The course of one job. Mutable: lost with the process, but for the window."""

    generation: int = 0
    planned: int = 0  # the newest generation whose plan is taken into ``step``
    step: int = 0  # the newest that was looked at
    rules: NumericsRules = NO_RULES
    course: Course = field(default_factory=Course)
    _hosts: frozenset[str] = frozenset()  # that the generation is placed on
    _told: dict[int, _Told] = field(default_factory=dict)
    _missed: set[int] = field(default_factory=set)  # steps that were passed over, of the newest

    def begin(self, watch: Watch) -> None:
        """Take up the watch's generation; where it goes on from, the course does too."""
        self.rules = watch.numerics
        if watch.generation != self.generation:
            self.generation = watch.generation
            self._told.clear()
            self._missed.clear()
            self._hosts = frozenset()
        if watch.placed and not self._hosts:
            self._hosts = frozenset(host.host_id for host in watch.hosts)
        if watch.restore_step is not None and self.planned < watch.generation:
            self.planned, self.step = watch.generation, max(watch.restore_step, 0)
            self._missed.clear()
            self.course = resumed(self.course, self.step)

    def remember(self, points: Iterable[Sound], generation: int) -> None:
        """Fill the window with what an earlier process has kept, oldest first.

        A spike among them is no news, and raises the window's scatter at worst. What an older
        ``generation`` than this one has made beyond the plan is undone, and will be made again.
        """
        known = tuple(points)
        if generation != self.generation and self.planned == self.generation:
            known = tuple(sound for sound in known if sound.step <= self.step)
        window = known[-self.rules.window_steps :]
        self.course = changed(self.course, window=window)
        self.step = max([self.step, *(sound.step for sound in window)])

    def told(self, metrics: StepMetrics) -> list[Found | Settled]:
        """Take one host's message."""
        said: list[Found | Settled] = []
        if metrics.generation != self.generation:
            return said
        for rank in metrics.ranks:
            if rank.step > self.step:
                self._take(rank, metrics.host_id)
        while self._told:
            first = min(self._told)
            whole = self._hosts <= self._told[first].hosts
            if not whole and max(self._told) - first < LATE_STEPS:
                break
            self._pass_over(first)
            point = _point(self._told.pop(first))
            self.course, new = follow(self.course, point, self.rules)
            said += new
        return said

    def told_again(self, metrics: StepMetrics) -> None:
        """Take what a host has told when it was asked for steps that did not come."""
        for rank in metrics.ranks if metrics.generation == self.generation else ():
            if rank.step in self._missed:
                self._missed.remove(rank.step)
                self.course = filled(self.course, _point(_Told(rank)), self.rules)

    def _pass_over(self, step: int) -> None:
        """Go on to a step; those of the window before it that nobody has told of are missed."""
        oldest = step - self.rules.window_steps
        self._missed = {one for one in self._missed if one >= oldest}
        self._missed |= set(range(max(self.step + 1, oldest), step))
        self.step = step

    def _take(self, rank: RankStep, host_id: str) -> None:
        told = self._told.get(rank.step)
        if told is None:
            told = self._told[rank.step] = _Told(rank)
        told.hosts.add(host_id)
        told.slowest_ms = max(told.slowest_ms, rank.step_time_ms)
        if rank.poisoned:
            told.poisoned.add(rank.rank)


def _point(told: _Told) -> Point:
    rank = told.first
    return Point(
        step=rank.step,
        position=rank.position,
        loss=rank.loss,
        grad_norm=rank.grad_norm,
        skipped=rank.health == HEALTH_SKIPPED,
        step_time_ms=told.slowest_ms,
        at_ms=rank.completed_at_ms,
        ranks=tuple(sorted(told.poisoned)),
    )


def verdict_of(found: Found, watch: Watch) -> Verdict:
    """Return a finding as a verdict: with the hosts of the ranks that it names."""
    ranks = frozenset(found.ranks)
    return Verdict(
        kind=found.kind,
        action=found.action,
        ranks=found.ranks,
        hosts=tuple(host.host_id for host in watch.hosts if ranks & set(host.ranks)),
        reason=found.reason,
        failed_at_ms=found.failed_at_ms,
        step=found.step,
        suspect_from_step=found.suspect_from_step,
        skipped=found.skipped,
    )


def settle(job_id: str, said: Settled, now_ms: int) -> SettleNote:
    """Return the command that ends what was noted."""
    return SettleNote(
        job_id=job_id,
        kind=said.kind,
        lost_ms=said.lost_ms,
        lost_steps=said.lost_steps,
        at_ms=now_ms,
    )
