"""The goodput ledger: every millisecond of a job's wall time under exactly one cause.

A job's time is cut at marks (generation begun, placed, running, paused, ended), incidents (failed,
detected) and completed steps; every piece between two cuts gets one cause, so the causes sum to the
wall time by construction. A step counts as useful until a later generation goes on from before it:
then it is lost work, because it is done again; so is one whose update was left out. The first step
of a generation takes longer than others (shape inference, caches): what it takes beyond the usual
belongs to the restart. Of a step, work that was done twice to compare its bits is verification; of
the rest, a job that has fewer ranks than were asked for is useful by the share that it has, and
what is missing is degraded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from statistics import median
from typing import Final


class Cause(StrEnum):
    """Where a second went."""

    USEFUL = "useful"
    CHECKPOINT_STALL = "checkpoint_stall"
    DATA_WAIT = "data_wait"
    VERIFICATION = "verification"
    DEGRADED = "degraded"
    LOST_WORK = "lost_work"
    DETECTION = "detection"
    RESTART = "restart"
    WAITING_FOR_HOSTS = "waiting_for_hosts"
    PAUSED = "paused"
    STARTUP = "startup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A completed step of one generation; parts are the slowest rank's.

    ``shadow_ms`` went to another replica's work, to compare its bits. ``skipped`` says that its
    update was left out: it has not advanced the training.
    """

    generation: int
    step: int
    completed_at_ms: int
    stall_ms: int = 0
    data_wait_ms: int = 0
    shadow_ms: int = 0
    step_time_ms: int = 0
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The stretch between two restarts. ``restore_step`` -1: fresh; times None: not reached.

    ``failed_at_ms``/``detected_at_ms`` are those of the incident that ended it; ``ranks`` are those
    of its placement, 0: not told.
    """

    generation: int
    cause: str
    begun_at_ms: int
    short_at_ms: int | None = None
    placed_at_ms: int | None = None
    restore_step: int | None = None
    failed_at_ms: int | None = None
    detected_at_ms: int | None = None
    paused_at_ms: int | None = None
    ranks: int = 0

    @property
    def unplaced(self) -> bool:
        """Whether hosts were missing to the last."""
        return self.short_at_ms is not None and self.placed_at_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Milliseconds by cause, which sum to ``wall_ms``."""

    wall_ms: int
    causes: dict[Cause, int]


class _Tape:
    """Lays pieces of time one after the other, never backwards and never past the end."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.at_ms = start_ms
        self._end_ms = end_ms
        self.causes: dict[Cause, int] = dict.fromkeys(Cause, 0)

    def until(self, at_ms: int | None, cause: Cause) -> None:
        """Put the time up to ``at_ms`` under ``cause``."""
        if at_ms is None:
            return
        stop = min(max(at_ms, self.at_ms), self._end_ms)
        self.causes[cause] += stop - self.at_ms
        self.at_ms = stop

    def train(self, at_ms: int, missing: Fraction) -> None:
        """Put the time up to ``at_ms`` under training, of which a share is missing."""
        stop = min(max(at_ms, self.at_ms), self._end_ms)
        missing_ms = (stop - self.at_ms) * missing.numerator // missing.denominator
        self.until(stop - missing_ms, Cause.USEFUL)
        self.until(stop, Cause.DEGRADED)


_BRING_UP: Final = {"launch": Cause.STARTUP}


def account(
    *,
    submitted_at_ms: int,
    end_ms: int,
    generations: Sequence[Generation],
    steps: Sequence[Step],
    ended: bool = False,
    full_ranks: int = 0,
) -> Ledger:
    """Account for every millisecond from ``submitted_at_ms`` to ``end_ms``.

    Args:
        submitted_at_ms: when the job was asked for.
        end_ms: when it ended, or now.
        generations: in order.
        steps: of all generations, in any order.
        ended: whether ``end_ms`` is the job's end rather than now.
        full_ranks: that were asked for; 0: not told.

    Returns:
        Causes that sum exactly to ``end_ms - submitted_at_ms``.
    """
    end_ms = max(end_ms, submitted_at_ms)
    tape = _Tape(submitted_at_ms, end_ms)
    of_generation: dict[int, list[Step]] = {}
    for step in sorted(steps, key=lambda s: (s.generation, s.step)):
        of_generation.setdefault(step.generation, []).append(step)
    usual_ms = _usual_ms(of_generation)
    for index, generation in enumerate(generations):
        later = generations[index + 1 :]
        kept_until = _kept_until(later)
        mine = of_generation.get(generation.generation, [])
        missing = _missing(generation, full_ranks)
        _bring_up(tape, generation, mine, usual_ms)
        for step in mine:
            lost = kept_until is not None and step.step > kept_until
            # What a stray has made after its successor began took none of the successor's time.
            lost_until_ms = later[0].begun_at_ms if lost else None
            _lay_step(tape, step, missing, lost_until_ms=lost_until_ms)
        if later:
            _lay_end(tape, generation, later[0], trained=bool(mine))
    last = generations[-1] if generations else None
    cause = _tail_cause(last, of_generation, ended=ended)
    if cause is Cause.USEFUL and last is not None:
        tape.train(end_ms, _missing(last, full_ranks))
    tape.until(end_ms, cause)
    return Ledger(wall_ms=end_ms - submitted_at_ms, causes=tape.causes)


def _kept_until(later: Sequence[Generation]) -> int | None:
    """Return the last step that no later generation does again; None if all are kept."""
    restores = [max(g.restore_step, 0) for g in later if g.restore_step is not None]
    return min(restores) if restores else None


def _missing(generation: Generation, full_ranks: int) -> Fraction:
    """Return the share of the ranks that a generation goes without: whole replicas of them."""
    if not 0 < generation.ranks < full_ranks:
        return Fraction(0)
    return Fraction(full_ranks - generation.ranks, full_ranks)


def _usual_ms(of_generation: dict[int, list[Step]]) -> int | None:
    """Return the median time of steps that are not the first of their generation."""
    times = [step.step_time_ms for steps in of_generation.values() for step in steps[1:]]
    return round(median(times)) if times else None


def _bring_up(
    tape: _Tape, generation: Generation, steps: Sequence[Step], usual_ms: int | None
) -> None:
    """From the begin of a generation to where its first step, had it been a usual one, began."""
    cause = _BRING_UP.get(generation.cause, Cause.RESTART)
    if generation.cause == "resume":
        tape.until(generation.begun_at_ms, Cause.PAUSED)
    tape.until(generation.begun_at_ms, cause)
    if generation.short_at_ms is not None:
        tape.until(generation.short_at_ms, cause)
        tape.until(generation.placed_at_ms, Cause.WAITING_FOR_HOSTS)
    if steps:
        first = steps[0]
        step_ms = first.step_time_ms if usual_ms is None else min(first.step_time_ms, usual_ms)
        tape.until(first.completed_at_ms - step_ms, cause)


def _lay_step(tape: _Tape, step: Step, missing: Fraction, *, lost_until_ms: int | None) -> None:
    """From the end of the previous step to the end of this one.

    ``missing`` is the share of the ranks that it was made without.
    ``lost_until_ms`` is None for a step that counts, else when the next generation began.
    """
    if lost_until_ms is not None:
        tape.until(min(step.completed_at_ms, lost_until_ms), Cause.LOST_WORK)
        return
    if step.skipped:
        tape.until(step.completed_at_ms, Cause.LOST_WORK)
        return
    took = max(0, step.completed_at_ms - tape.at_ms)
    stall = min(step.stall_ms, took)
    wait = min(step.data_wait_ms, took - stall)
    shadow = min(step.shadow_ms, took - stall - wait)
    tape.until(tape.at_ms + wait, Cause.DATA_WAIT)
    tape.until(tape.at_ms + shadow, Cause.VERIFICATION)
    tape.train(step.completed_at_ms - stall, missing)
    tape.until(step.completed_at_ms, Cause.CHECKPOINT_STALL)


def _lay_end(tape: _Tape, generation: Generation, following: Generation, *, trained: bool) -> None:
    """From the last completed step to the begin of the next generation.

    A monitor that learns of both late detects what ended this one when the next one trains already:
    that costs nothing any more.
    """
    begun_ms = following.begun_at_ms
    failed_ms, detected_ms = (
        None if at_ms is None else min(at_ms, begun_ms)
        for at_ms in (generation.failed_at_ms, generation.detected_at_ms)
    )
    if generation.unplaced and not trained:
        paused_ms = generation.paused_at_ms
        tape.until(begun_ms if paused_ms is None else paused_ms, Cause.WAITING_FOR_HOSTS)
    cause = Cause.LOST_WORK if trained else _BRING_UP.get(generation.cause, Cause.RESTART)
    tape.until(failed_ms, cause)
    tape.until(detected_ms, Cause.DETECTION)
    if generation.paused_at_ms is not None:
        tape.until(generation.paused_at_ms, Cause.RESTART)
        tape.until(following.begun_at_ms, Cause.PAUSED)
    tape.until(following.begun_at_ms, Cause.RESTART)


def _tail_cause(last: Generation | None, steps: dict[int, list[Step]], *, ended: bool) -> Cause:
    """Return what the time after the last cut is: still coming up, waiting, or finishing.

    After the last step a run writes its final checkpoint; while it trains, the step in work is
    useful until something says otherwise.
    """
    if last is None:
        return Cause.STARTUP
    if last.paused_at_ms is not None:
        return Cause.PAUSED
    if last.generation in steps:
        return Cause.CHECKPOINT_STALL if ended else Cause.USEFUL
    if last.unplaced:
        return Cause.WAITING_FOR_HOSTS
    return _BRING_UP.get(last.cause, Cause.RESTART)
