"""Says when no step for so long is worth a look, and how long each explanation is waited for.

Looking harms nobody (a third of a second of the agents, one interrupted system call of a rank), so
it begins early; judging restarts a run, so it waits for as long as what is seen could be in order.
A stopped rank cannot be in order, nor can one that stands still in the middle of a step that the
others have long finished. What a rank does before its first step or between two steps (compile,
evaluate, save) may take long, and from outside nothing tells it from a loop that never ends: it is
given nearly as long as the other ranks will wait for it.

Whoever is to be named is named before the others give up, if that can be: their collectives' ends
say of nobody that it was the one, only the looks before them do. So of long steps fewer are waited
for. Where all wait alike nobody is to be named, and there is no hurry.

Rejected: one limit for all (15 s shoots evaluations, 10 minutes is no detection), and a limit that
the user sets for each kind of pause (nobody does, until the first false alarm).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Final

GAPS_MAX: Final = (
    32  # steps that "usual" and "long" look back on: a median that two pauses leave alone
)
NEVER_MS: Final = 2**62  # later than any patience


@dataclass(frozen=True, slots=True, kw_only=True)
class HangLimits:
    """Thresholds of hangs; chosen, not measured, but for the sums in the remarks."""

    # Looks at 6, 8 and 10 s and a verdict with the third keep the promise of 15 s for all runs with
    # steps below 1 s, with 4 s to spare for slow answers.
    look_ms: int = 6_000
    look_again_ms: int = 2_000
    judge_ms: int = 10_000
    # In units of the usual step. A step's time scatters by less than its half, the odd one (a page
    # cache that is cold, a host that was busy) takes a few times as long.
    look_steps: int = 8
    judge_steps: int = 10
    # One long step announces others: kernels that are compiled for a new shape, an evaluation.
    look_long_steps: float = 1.5
    judge_long_steps: float = 2.0
    # Before the first step of a generation, models are compiled, caches filled and corpora opened.
    look_first_ms: int = 30_000
    judge_first_ms: int = 600_000
    # The others give up when their collective's timeout is over, and then nobody is named: what may
    # be in order is judged this much before, and so is what ``judge_steps`` would be too late for.
    timeout_margin_ms: int = 15_000
    # The eight looks that must agree on who may be at work, two seconds apart, come before that.
    looks_ms: int = 16_000
    # Everybody stands still and nobody is to blame, not even a collective: a person's pause, or a
    # deadlock that no timeout ends.
    hopeless_ms: int = 1_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a run steps, on the monitor's own clock.

    Args:
        stepped_ms: when a step was last seen to complete, or since when ranks could be at work.
        gaps_ms: the newest times of a step, oldest first.
        progressed: whether this generation has completed a step.
    """

    stepped_ms: int
    gaps_ms: tuple[int, ...] = ()
    progressed: bool = False

    @property
    def usual_ms(self) -> int:
        """Median time of a step, 0 before there is one."""
        return round(median(self.gaps_ms)) if self.gaps_ms else 0

    @property
    def longest_ms(self) -> int:
        """The longest of the newest steps."""
        return max(self.gaps_ms, default=0)

    def begun(self, now_ms: int) -> Pace:
        """Return the pace of a new generation: it steps as the last one did, once it steps."""
        return replace(self, stepped_ms=now_ms, progressed=False)

    def stepped(self, now_ms: int, took_ms: int = 0) -> Pace:
        """Return the pace after one more step, which nobody had completed before.

        It has taken ``took_ms`` by its ranks' word at least: steps that are told in one go, after
        the bus was away, come without a gap.
        """
        gaps_ms = self.gaps_ms
        if self.progressed:
            gaps_ms = (*gaps_ms, max(0, now_ms - self.stepped_ms, took_ms))[-GAPS_MAX:]
        return Pace(stepped_ms=max(self.stepped_ms, now_ms), gaps_ms=gaps_ms, progressed=True)

    def excused(self, now_ms: int) -> Pace:
        """Return the pace when the monitor itself could not see until now."""
        return replace(self, stepped_ms=max(self.stepped_ms, now_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """For how long without a step each explanation is waited for [ms].

    Args:
        look: before anybody is asked.
        stopped: a rank that is stopped.
        sure: a rank that stands still, or spins, in the middle of a step.
        together: all ranks, which wait in the middle of a step.
        unsure: a rank that may be at work.
        hopeless: everybody, whatever they do.
    """

    look: int
    stopped: int
    sure: int
    together: int
    unsure: int
    hopeless: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """No step for longer than usual: time to look at the ranks' stacks."""

    silent_ms: int
    patience_ms: int
    usual_ms: int


def given_up(patience: Patience, limits: HangLimits, *, collective_timeout_ms: int) -> Patience:
    """Return the patience once the others' collectives have failed by their timeout.

    Whatever it is that a rank did in the middle of a step until then, it was too long for them.
    """
    waited_ms = max(limits.judge_ms, collective_timeout_ms - limits.timeout_margin_ms)
    return replace(patience, sure=min(patience.sure, waited_ms))


def is_stuck(
    now_ms: int, pace: Pace, limits: HangLimits, *, collective_timeout_ms: int
) -> Stuck | None:
    """Say whether to look at the ranks; None while the next step is not overdue.

    Args:
        now_ms: on the clock of ``pace``. Do not ask while the monitor is blind.
        pace: of a run that tells of its steps; a script without the SDK has none.
        limits: thresholds.
        collective_timeout_ms: of the job's recovery; 0 where it is not known.
    """
    silent_ms = now_ms - pace.stepped_ms
    patience_ms = patience_for(pace, limits, collective_timeout_ms=collective_timeout_ms).look
    if silent_ms < patience_ms:
        return None
    return Stuck(silent_ms=silent_ms, patience_ms=patience_ms, usual_ms=pace.usual_ms)


def patience_for(pace: Pace, limits: HangLimits, *, collective_timeout_ms: int) -> Patience:
    """Return for how long each explanation is waited for at this pace.

    Args:
        pace: of the run.
        limits: thresholds.
        collective_timeout_ms: after which the ranks' collectives fail by themselves; 0 where it is
            not known.
    """
    usual, longest = pace.usual_ms, pace.longest_ms
    last_ms = collective_timeout_ms - limits.timeout_margin_ms
    in_time_ms = last_ms if collective_timeout_ms else NEVER_MS
    many_steps = limits.judge_steps * usual
    # One step alone tells no time: a sound run of long steps would be judged by none.
    known = pace.progressed and bool(pace.gaps_ms)
    long_judge = max(
        round(limits.judge_long_steps * longest), 0 if known else limits.judge_first_ms
    )
    stopped = max(limits.judge_ms, min(many_steps, in_time_ms))
    # After a pause that the others wait for there is still a whole step to be made.
    sure = max(stopped, min(many_steps, in_time_ms + usual), long_judge)
    together = max(sure, many_steps)
    unsure = max(sure, last_ms)
    overdue = limits.look_steps * usual if known else limits.look_first_ms
    long_look = round(limits.look_long_steps * longest) if known else 0
    return Patience(
        look=max(limits.look_ms, min(overdue, in_time_ms - limits.looks_ms), long_look),
        stopped=stopped,
        sure=sure,
        together=together,
        unsure=unsure,
        hopeless=max(limits.hopeless_ms, 2 * unsure, 2 * together),
    )
