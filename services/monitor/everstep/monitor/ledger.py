"""The goodput ledger: every millisecond of a job's wall time under exactly one cause.

A job's time is cut at marks (generation begun, placed, running, paused, ended), incidents (failed,
detected) and completed steps; every piece between two cuts gets one cause, so the causes sum to the
wall time by construction. A step counts as useful until a later generation goes on from before it:
then it is lost work, because it is done again; so is one whose update was left out. The first step
of a generation takes longer than others (shape inference, caches): what it takes beyond the usual
belongs to the restart. Of a step, work that was done twice to compare its bits is verification; of
the rest, a job that has fewer ranks than were asked for is useful by the share that it has, and
what is missing is degraded. A script that tells of no steps is useful while its ranks are at work.

``account`` takes all steps at once; ``accounts.py`` takes them page by page and keeps what it has
laid. Both lay them with ``Laying`` and ``Stretch``, so that they come to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from everstep.monitor.tape import Cause, Rule, Step, Stretch, Tape

__all__ = ["Cause", "Facts", "Generation", "Laying", "Ledger", "Step", "account", "usual_ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The stretch between two restarts. ``restore_step`` -1: fresh; times None: not reached.

    ``running_at_ms`` is when all its ranks were at work; ``failed_at_ms``/``detected_at_ms`` are
    those of the incident that ended it; ``ranks`` are those of its placement, 0: not told.
    """

    generation: int
    cause: str
    begun_at_ms: int
    short_at_ms: int | None = None
    placed_at_ms: int | None = None
    restore_step: int | None = None
    running_at_ms: int | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a job beside its steps; as the arguments of ``account``."""

    submitted_at_ms: int
    end_ms: int
    generations: Sequence[Generation]
    ended: bool = False
    full_ranks: int = 0


_BRING_UP: Final = {"launch": Cause.STARTUP}


class Laying:
    """Lays a job's time, generation after generation: ``open``, ``rest``, ``close`` of each."""

    def __init__(self, facts: Facts, usual_ms: int | None, *, steps: bool) -> None:
        """``usual_ms`` is the usual time of a step; ``steps``: whether the job tells of any."""
        self.facts = facts
        self._usual_ms = usual_ms
        self._tells = steps
        end_ms = max(facts.end_ms, facts.submitted_at_ms)
        self.tape = Tape(facts.submitted_at_ms, end_ms)
        self._rules = _rules(facts)
        self._trained = False

    def rule(self, index: int) -> Rule:
        """Return how the steps of a generation, by its place, are laid."""
        return self._rules[index]

    def open(self, index: int, first: Step | None) -> None:
        """From the begin of a generation to the end of its first step, if it has one."""
        generation, rule = self.facts.generations[index], self._rules[index]
        self._trained = first is not None
        _bring_up(self.tape, generation)
        cause = _BRING_UP.get(generation.cause, Cause.RESTART)
        if first is not None:
            self.tape.until(self._comes_up_ms(first, rule), cause)
            self.tape.lay(first, rule)
        elif self._works_untold(generation):
            self._trained = True
            self.tape.until(generation.running_at_ms, cause)
            begun_ms = self._begun_ms(index + 1)
            for at_ms in (generation.failed_at_ms, generation.paused_at_ms, begun_ms):
                if at_ms is not None:
                    self.tape.train(min(at_ms, begun_ms), rule.missing)
                    break

    def rest(self, stretch: Stretch) -> None:
        """Take the steps after the first."""
        assert stretch.start_ms == self.tape.at_ms
        self.tape.then(stretch.tape)

    def close(self, index: int) -> None:
        """From the last completed step to the begin of the next generation, or to the end."""
        generation = self.facts.generations[index]
        detected_ms = generation.detected_at_ms
        # The last one may have gone on, and finished, in spite of what was found.
        broken = detected_ms is not None and self.tape.at_ms <= detected_ms
        if broken or index + 1 < len(self.facts.generations):
            _lay_end(self.tape, generation, self._begun_ms(index + 1), trained=self._trained)

    def finish(self) -> Ledger:
        """What follows the last cut; return the ledger."""
        facts, tape = self.facts, self.tape
        last = facts.generations[-1] if facts.generations else None
        if last is not None and self._trained and last.paused_at_ms is None and not facts.ended:
            tape.train(tape.end_ms, self._rules[-1].missing)
        tape.until(tape.end_ms, _tail_cause(last, trained=self._trained))
        return Ledger(wall_ms=tape.end_ms - facts.submitted_at_ms, causes=tape.causes)

    def _comes_up_ms(self, first: Step, rule: Rule) -> int:
        """Return where a first step, had it been a usual one, began."""
        took_ms = first.step_time_ms
        if self._usual_ms is not None:
            took_ms = min(took_ms, self._usual_ms)
        at_ms = first.completed_at_ms - max(took_ms, 0)
        if rule.loses(first.step) and rule.lost_until_ms is not None:
            return min(at_ms, rule.lost_until_ms)
        return at_ms

    def _works_untold(self, generation: Generation) -> bool:
        """Whether a script without the SDK was at work: its job has not told of a single step."""
        return not self._tells and generation.running_at_ms is not None

    def _begun_ms(self, index: int) -> int:
        """Return when a generation began; the end, if there is none."""
        generations = self.facts.generations
        return generations[index].begun_at_ms if index < len(generations) else self.tape.end_ms


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
        steps: of these generations, in any order.
        ended: whether ``end_ms`` is the job's end rather than now.
        full_ranks: that were asked for; 0: not told.

    Returns:
        Causes that sum exactly to ``end_ms - submitted_at_ms``.
    """
    facts = Facts(
        submitted_at_ms=submitted_at_ms,
        end_ms=end_ms,
        generations=generations,
        ended=ended,
        full_ranks=full_ranks,
    )
    of_generation: dict[int, list[Step]] = {one.generation: [] for one in generations}
    for step in sorted(steps, key=lambda s: (s.generation, s.step)):
        if step.generation in of_generation:
            of_generation[step.generation].append(step)
    times = Counter(step.step_time_ms for mine in of_generation.values() for step in mine[1:])
    laying = Laying(facts, usual_ms(times), steps=any(of_generation.values()))
    for index, generation in enumerate(generations):
        mine = of_generation[generation.generation]
        laying.open(index, mine[0] if mine else None)
        if mine:
            stretch = Stretch(
                laying.tape.at_ms, laying.tape.end_ms, laying.rule(index), mine[0].step
            )
            stretch.lay(mine[1:])
            laying.rest(stretch)
        laying.close(index)
    return laying.finish()


def usual_ms(times: Counter[int]) -> int | None:
    """Return the median time of steps that are not the first of their generation."""
    count = times.total()
    if not count:
        return None
    passed, low = 0, None
    for ms in sorted(times):
        passed += times[ms]
        if low is None and 2 * passed >= count:
            low = ms
        if low is not None and 2 * passed > count:
            return round((low + ms) / 2)
    return low


def _rules(facts: Facts) -> list[Rule]:
    """Return how the steps of each generation are laid."""
    rules: list[Rule] = []
    kept_until = begun_ms = None
    for generation in reversed(facts.generations):
        missing = _missing(generation, facts.full_ranks)
        rules.append(Rule(missing=missing, kept_until=kept_until, lost_until_ms=begun_ms))
        begun_ms = generation.begun_at_ms
        if generation.restore_step is not None:
            restored = max(generation.restore_step, 0)
            kept_until = restored if kept_until is None else min(kept_until, restored)
    return rules[::-1]


def _missing(generation: Generation, full_ranks: int) -> Fraction:
    """Return the share of the ranks that a generation goes without: whole replicas of them."""
    if not 0 < generation.ranks < full_ranks:
        return Fraction(0)
    return Fraction(full_ranks - generation.ranks, full_ranks)


def _bring_up(tape: Tape, generation: Generation) -> None:
    """From the begin of a generation to its placement."""
    cause = _BRING_UP.get(generation.cause, Cause.RESTART)
    if generation.cause == "resume":
        tape.until(generation.begun_at_ms, Cause.PAUSED)
    tape.until(generation.begun_at_ms, cause)
    if generation.short_at_ms is not None:
        tape.until(generation.short_at_ms, cause)
        tape.until(generation.placed_at_ms, Cause.WAITING_FOR_HOSTS)


def _lay_end(tape: Tape, generation: Generation, begun_ms: int, *, trained: bool) -> None:
    """From the last completed step to the begin of the next generation.

    A monitor that learns of both late detects what ended this one when the next one trains already:
    that costs nothing any more.
    """
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
        tape.until(begun_ms, Cause.PAUSED)
    tape.until(begun_ms, Cause.RESTART)


def _tail_cause(last: Generation | None, *, trained: bool) -> Cause:
    """Return what the time after the last cut is: still coming up, waiting, or finishing.

    After the last step a run writes its final checkpoint; while it trains, the step in work is
    useful until something says otherwise.
    """
    if last is None:
        return Cause.STARTUP
    if last.paused_at_ms is not None:
        return Cause.PAUSED
    if trained:
        return Cause.CHECKPOINT_STALL
    if last.unplaced:
        return Cause.WAITING_FOR_HOSTS
    return _BRING_UP.get(last.cause, Cause.RESTART)
