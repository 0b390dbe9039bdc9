"""Lays pieces of a job's time one after the other, each under a cause; see ``ledger.py``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


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
class Rule:
    """How the steps of a generation are laid.

    ``missing`` is the share of the ranks that they are made without. Those after ``kept_until``
    are made again by later generations, the next of which began at ``lost_until_ms``: what a stray
    has made after that took none of its time. None: all are kept.
    """

    missing: Fraction = Fraction(0)
    kept_until: int | None = None
    lost_until_ms: int | None = None

    def loses(self, step: int) -> bool:
        """Whether a step is made again later."""
        return self.kept_until is not None and step > self.kept_until


class Tape:
    """Lays pieces of time one after the other, never backwards and never past the end."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.at_ms = start_ms
        self.end_ms = end_ms
        self.cut = False  # whether anything was laid that goes past the end
        self.causes: dict[Cause, int] = dict.fromkeys(Cause, 0)

    def until(self, at_ms: int | None, cause: Cause) -> None:
        """Put the time up to ``at_ms`` under ``cause``."""
        if at_ms is None:
            return
        if at_ms > self.end_ms:
            self.cut = True
            at_ms = self.end_ms
        if at_ms > self.at_ms:
            self.causes[cause] += at_ms - self.at_ms
            self.at_ms = at_ms

    def train(self, at_ms: int, missing: Fraction) -> None:
        """Put the time up to ``at_ms`` under training, of which a share is missing."""
        if at_ms > self.end_ms:
            self.cut = True
            at_ms = self.end_ms
        stop = max(at_ms, self.at_ms)
        missing_ms = (stop - self.at_ms) * missing.numerator // missing.denominator
        self.until(stop - missing_ms, Cause.USEFUL)
        self.until(stop, Cause.DEGRADED)

    def lay(self, step: Step, rule: Rule) -> None:
        """From the end of the previous step to the end of this one."""
        if rule.loses(step.step):
            until_ms = rule.lost_until_ms
            ended_ms = step.completed_at_ms
            self.until(ended_ms if until_ms is None else min(ended_ms, until_ms), Cause.LOST_WORK)
            return
        if step.skipped:
            self.until(step.completed_at_ms, Cause.LOST_WORK)
            return
        took = max(0, step.completed_at_ms - self.at_ms)
        stall = min(step.stall_ms, took)
        wait = min(step.data_wait_ms, took - stall)
        shadow = min(step.shadow_ms, took - stall - wait)
        self.until(self.at_ms + wait, Cause.DATA_WAIT)
        self.until(self.at_ms + shadow, Cause.VERIFICATION)
        self.train(step.completed_at_ms - stall, rule.missing)
        self.until(step.completed_at_ms, Cause.CHECKPOINT_STALL)

    def then(self, other: Tape) -> None:
        """Put what another tape has laid from here on."""
        assert other is not self
        for cause, ms in other.causes.items():
            self.causes[cause] += ms
        self.at_ms = other.at_ms


class Stretch:
    """Steps of a generation after its first, laid in order; more may follow.

    What of a step belongs to the bring-up is a matter of the first one alone: the others can be
    laid before anything is known of the usual time of a step.
    """

    def __init__(self, start_ms: int, end_ms: int, rule: Rule, step: int) -> None:
        """``start_ms`` is where the first step, number ``step``, has ended."""
        self.start_ms = start_ms
        self.rule = rule
        self.step = step
        self.tape = Tape(start_ms, end_ms)

    def lay(self, steps: Iterable[Step]) -> None:
        """Go on with later steps."""
        for step in steps:
            self.tape.lay(step, self.rule)
            self.step = step.step

    def goes_on(self, start_ms: int, end_ms: int, rule: Rule) -> bool:
        """Whether all that is laid would be laid the same from there, to there, by that rule.

        If so, what follows is laid by them.
        """
        loses, lost = rule.loses(self.step), self.rule.loses(self.step)
        same_end = end_ms == self.tape.end_ms or (not self.tape.cut and self.tape.at_ms <= end_ms)
        same = start_ms == self.start_ms and same_end and rule.missing == self.rule.missing
        if not same or (rule != self.rule and (loses or lost)):
            return False
        self.rule = rule
        self.tape.end_ms = end_ms
        return True

    def copied(self) -> Stretch:
        """Return one that goes on by itself."""
        copy = Stretch(self.start_ms, self.tape.end_ms, self.rule, self.step)
        copy.tape.then(self.tape)
        copy.tape.cut = self.tape.cut
        return copy
