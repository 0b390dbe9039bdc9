"""Puts a history together from the generations of a run, however they were told.

Both readers (the services' documents, exported events) fill in ``Course``; what a failure cost is
worked out here once. Training of a generation begins one usual step before its first step is done,
as in the monitor's ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from everstep.core.errors import InvalidInput
from everstep.planner.history import (
    PLANNED,
    Arrival,
    Cadence,
    Failure,
    History,
    IdleLoss,
    LostHost,
    Spell,
    usual_ms,
    with_whole_restarts,
)
from everstep.planner.history_ledger import added_up, observed
from everstep.planner.history_times import refuse_absurd

BESIDE: Final = frozenset({"NOTE", "DRAIN"})  # incidents that end no generation by themselves
RESTS: Final = frozenset({"pause", "stop"})
HALF: Final = 0.5  # of a step is done, on average, when something breaks
# A generation's own pace is believed when it is that of some steps, and plainly another one.
OWN_PACE_STEPS_MIN: Final = 10
OWN_PACE_SHARE: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One generation. Times are milliseconds since the epoch, None: not reached.

    ``failed_at_ms``, ``detected_at_ms``, ``kind`` and ``last_step`` are those of the incident that
    ended it; ``first_at_ms`` is when ``first_step`` was done. ``lost``: hosts that it goes without.
    ``rolled_back``: it went on from before a suspect step; ``over_at_ms``: the job ended in it.
    """

    generation: int
    cause: str
    begun_at_ms: int
    short_at_ms: int | None = None
    placed_at_ms: int | None = None
    restore_step: int | None = None
    first_step: int = 0
    first_at_ms: int | None = None
    paused_at_ms: int | None = None
    lost: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    failed_at_ms: int | None = None
    detected_at_ms: int | None = None
    last_step: int | None = None
    kind: str = ""
    rolled_back: bool = False
    over_at_ms: int | None = None

    @property
    def from_step(self) -> int:
        """The step that it went on from."""
        return max(self.restore_step or 0, 0)

    @property
    def waiting_ms(self) -> int:
        """How long it waited for hosts."""
        if self.short_at_ms is None or self.placed_at_ms is None:
            return 0
        return max(self.placed_at_ms - self.short_at_ms, 0)


@dataclass(slots=True, kw_only=True)
class Course:
    """A run as it was told; times are milliseconds since the epoch.

    ``out_ms`` says how long a host was away that broke at a moment; ``done_at_ms`` when a
    generation had done a step, None if that was not told; ``measured`` is the observed ledger, if
    there is one.
    """

    job_id: str
    submitted_at_ms: int
    end_ms: int
    spec: Mapping[str, Any]
    attempts: Sequence[Attempt]
    out_ms: Callable[[str, int], int | None]
    step_ms: float  # with everything but the stall of a save
    stall_ms: float = 0.0  # a save
    finish_ms: int = 0
    hosts: Sequence[str] = ()
    spares: Sequence[str] = ()
    idle_losses: Sequence[tuple[int, str]] = ()
    arrivals: Sequence[Arrival] = ()
    spells: Sequence[Spell] = ()
    slow_ms: int = 0
    measured: Mapping[str, int] | None = None
    completed: Sequence[tuple[int, int, int]] = ()  # generation, step, when: of checkpoints
    done_at_ms: Callable[[int, int], int | None] = lambda _generation, _step: None
    cadences: Sequence[tuple[int, int, int]] = ()  # when, steps in memory, steps to the store
    notes: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)


def history_of(course: Course) -> History:
    """Return the history of a run as it was told.

    Raises:
        InvalidInput: the run has never trained, or its times make no sense.
    """
    refuse_absurd(course)
    first = next((one for one in course.attempts if one.first_at_ms is not None), None)
    if first is None or course.step_ms <= 0:
        raise InvalidInput(
            f"the record of {course.job_id} is too short: it has not come to its second step, or "
            "its script tells of none"
        )
    launched = course.attempts[0]
    up_at_ms = _trains_ms(launched, course) if first is launched else launched.failed_at_ms
    up_ms = max((up_at_ms or course.attempts[1].begun_at_ms) - course.submitted_at_ms, 0)
    history = History(
        job_id=course.job_id,
        wall_ms=course.end_ms - course.submitted_at_ms,
        launch_waiting_ms=min(launched.waiting_ms, up_ms),
        startup_ms=up_ms - min(launched.waiting_ms, up_ms),
        finish_ms=course.finish_ms,
        step_ms=round(course.step_ms),
        interval_ms=max(round(memory_every(course.spec) * course.step_ms), 1),
        stall_ms=round(course.stall_ms),
        stored_every_ms=round(_object_every(course.spec) * course.step_ms),
        stored_after_ms=_uploads_ms(course),
        hosts=tuple(sorted(course.hosts)),
        spares=tuple(sorted(course.spares)),
        replicas=_replicas(course.spec),
        failures=tuple(_failures(course)),
        idle_losses=tuple(
            IdleLoss(at_ms=at_ms - course.submitted_at_ms, host=_lost(course, host, at_ms))
            for at_ms, host in course.idle_losses
        ),
        arrivals=tuple(course.arrivals),
        spells=tuple(course.spells),
        cadences=tuple(
            Cadence(
                at_ms=max(at_ms - course.submitted_at_ms, 0),
                interval_ms=max(round((memory_steps or 1) * course.step_ms), 1),
                stored_every_ms=round(object_steps * course.step_ms),
            )
            for at_ms, memory_steps, object_steps in sorted(course.cadences)
        ),
        measured={},
        notes=tuple(course.notes),
        untold=(*course.untold, *_untold(course)),
    )
    if course.measured is None:
        return replace(history, measured=added_up(history))
    again_ms = sum(_over_ms(*ends) for ends in _ends(course.attempts))
    causes = observed(course.measured, slow_ms=course.slow_ms, begun_again_ms=again_ms)
    return replace(history, measured=causes)


def memory_every(spec: Mapping[str, Any]) -> int:
    """Return the steps between two saves in memory."""
    return int((spec.get("checkpoint") or {}).get("memory_every_steps") or 1)


def _object_every(spec: Mapping[str, Any]) -> int:
    return int((spec.get("checkpoint") or {}).get("object_every_steps") or 0)


def _uploads_ms(course: Course) -> int:
    """Return how long after its step a checkpoint is complete, usually."""
    attempts = {one.generation: one for one in course.attempts if one.first_at_ms is not None}
    took = []
    for generation, step, completed_at_ms in course.completed:
        done_at_ms = course.done_at_ms(generation, step)
        attempt = attempts.get(generation)
        if done_at_ms is None and attempt is not None:
            done_at_ms = _trains_ms(attempt, course) + round(
                (step - attempt.from_step) * _usual_unit_ms(course)
            )
        if done_at_ms is not None:
            took.append(max(completed_at_ms - done_at_ms, 0))
    return usual_ms(took)


def _usual_unit_ms(course: Course) -> float:
    """Return what a step takes, with its share of the saves."""
    return course.step_ms + course.stall_ms / memory_every(course.spec)


def _replicas(spec: Mapping[str, Any]) -> int:
    layout = spec.get("layout") or {}
    return int(layout.get("dp_replicate") or 1) * int(layout.get("dp_shard") or 1)


def _trains_ms(attempt: Attempt, course: Course) -> int:
    """Return when the attempt's training began, had its first steps been usual ones."""
    assert attempt.first_at_ms is not None, f"generation {attempt.generation} never trained"
    steps = max(attempt.first_step - attempt.from_step, 1)
    stalls = steps // memory_every(course.spec)
    began_ms = attempt.first_at_ms - round(steps * course.step_ms + stalls * course.stall_ms)
    return max(began_ms, attempt.begun_at_ms)


def _failures(course: Course) -> list[Failure]:
    """Walk over the generations, and say what each end of one cost."""
    failures: list[Failure] = []
    broken_off: set[int] = set()
    work = _Work(course)
    for ended, rest, following in _ends(course.attempts):
        at_ms = ended.failed_at_ms or (rest or following or ended).begun_at_ms
        detected_ms = max(ended.detected_at_ms or at_ms, at_ms)
        work.trained(ended, at_ms)
        if following is None:  # it rests still
            begun_ms = up_ms = course.end_ms
        else:
            begun_ms, up_ms = following.begun_at_ms, _up_ms(course, following)
        if following is None or following.first_at_ms is None:
            broken_off.add(len(failures))
        paused_ms = 0 if rest is None else begun_ms - (rest.paused_at_ms or rest.begun_at_ms)
        paused_ms = max(paused_ms, _over_ms(ended, rest, following))
        waiting_ms = following.waiting_ms if following else 0
        failures.append(
            Failure(
                at_ms=max(at_ms - course.submitted_at_ms, 0),
                kind=_kind(ended, rest, following),
                lost=tuple(_lost(course, host, at_ms) for host in (following or ended).lost)
                if following
                else (),
                replacements=following.replacements if following else (),
                detection_ms=detected_ms - at_ms,
                restart_ms=max(up_ms - detected_ms - waiting_ms - paused_ms, 0),
                waiting_ms=waiting_ms,
                lost_work_ms=work.lost(_restored(course.attempts, ended)),
                paused_ms=paused_ms,
                rollback=following is not None and following.rolled_back,
            )
        )
    return with_whole_restarts(failures, frozenset(broken_off))


def _ends(
    attempts: Sequence[Attempt],
) -> Iterator[tuple[Attempt, Attempt | None, Attempt | None]]:
    """Yield each generation that ended, its rest (if it had one), and what came after it.

    A rest is a pause, or a stop after which the job was begun again.
    """
    i = 0
    while i + 1 < len(attempts):
        after = i + 1
        while after < len(attempts) and attempts[after].cause in RESTS:
            after += 1
        rest = attempts[i + 1] if after > i + 1 else None
        if after == len(attempts) and rest is not None and rest.cause == "stop":
            return  # that was its end
        yield attempts[i], rest, attempts[after] if after < len(attempts) else None
        i = after


def _kind(ended: Attempt, rest: Attempt | None, following: Attempt | None) -> str:
    if rest is not None:
        return rest.cause
    if following is not None and following.cause in PLANNED:
        return following.cause
    return ended.kind or "host_lost"  # no incident: a host did not answer the fence or the start


def _over_ms(ended: Attempt, rest: Attempt | None, following: Attempt | None) -> int:
    """Return how long the job was over until a person began it again."""
    over_ms = rest.paused_at_ms if rest is not None and rest.cause == "stop" else ended.over_at_ms
    if following is None or over_ms is None:
        return 0
    return max(following.begun_at_ms - over_ms, 0)


def _untold(course: Course) -> list[str]:
    """Say what of a run's course a replay leaves out."""
    notes = []
    causes = {one.cause for one in course.attempts}
    if any(one.rolled_back for one in course.attempts):
        notes.append("batches that rollbacks left out (their steps count as useful)")
    if "grow" in causes:
        notes.append(
            "that the run went on with fewer replicas and grew back (without --no-spare elastic it "
            "is replayed as waits for hosts)"
        )
    again = [(ended, rest, then) for ended, rest, then in _ends(course.attempts) if rest is None]
    if any(
        then is not None and then.cause == "restart" and ended.kind and ended.over_at_ms is None
        for ended, _, then in again
    ):
        notes.append(
            "when the job had ended before a person began it again, if it had (the time until then "
            "counts as restart)"
        )
    return notes


def _up_ms(course: Course, attempt: Attempt) -> int:
    """Return when an attempt trained, or was broken off."""
    if attempt.first_at_ms is not None:
        return _trains_ms(attempt, course)
    later = [one for one in course.attempts if one.generation > attempt.generation]
    ended_ms = attempt.failed_at_ms or (later[0].begun_at_ms if later else course.end_ms)
    return max(ended_ms, attempt.begun_at_ms)


def _restored(attempts: Sequence[Attempt], ended: Attempt) -> int | None:
    """Return the step that the run went on from after a generation."""
    later = (one for one in attempts if one.generation > ended.generation)
    return next((one.from_step for one in later if one.restore_step is not None), None)


def _lost(course: Course, host_id: str, at_ms: int) -> LostHost:
    return LostHost(host_id=host_id, out_ms=course.out_ms(host_id, at_ms))


@dataclass(slots=True, kw_only=True)
class _Stretch:
    """Training that is kept so far: steps ``first + 1`` to ``last``, and what of one was begun."""

    generation: int
    first: int
    last: float
    begun_ms: int
    wall_ms: int
    unit_ms: float


class _Work:
    """Remembers what was trained, and says what going back to a step throws away."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._kept: list[_Stretch] = []

    def trained(self, attempt: Attempt, until_ms: int) -> None:
        """Note a generation's training."""
        if attempt.first_at_ms is None:
            return
        begun_ms = _trains_ms(attempt, self._course)
        wall_ms = max(until_ms - begun_ms, 0)
        self._kept.append(
            _Stretch(
                generation=attempt.generation,
                first=attempt.from_step,
                last=math.inf,
                begun_ms=begun_ms,
                wall_ms=wall_ms,
                unit_ms=self._unit_ms(attempt, wall_ms),
            )
        )

    def lost(self, step: int | None) -> int:
        """Go back to a step; return the training that is lost by it [ms]."""
        lost_ms = 0
        while step is not None and self._kept and self._kept[-1].last > step:
            stretch = self._kept.pop()
            kept_ms = min(self._until_ms(stretch, step), stretch.wall_ms)
            lost_ms += stretch.wall_ms - kept_ms
            if step >= stretch.first:
                self._kept.append(replace(stretch, last=step, wall_ms=kept_ms))
        return lost_ms

    def _until_ms(self, stretch: _Stretch, step: int) -> int:
        """Return how long the stretch had trained when the step was done."""
        if step <= stretch.first:
            return 0
        done_at_ms = self._course.done_at_ms(stretch.generation, step)
        if done_at_ms is not None:
            return max(done_at_ms - stretch.begun_ms, 0)
        return round((step - stretch.first) * stretch.unit_ms)

    def _unit_ms(self, attempt: Attempt, wall_ms: int) -> float:
        """Return what a step took: as usual, unless the generation's own pace was another one."""
        usual_unit_ms = _usual_unit_ms(self._course)
        steps = (attempt.last_step or 0) - attempt.from_step
        if steps < OWN_PACE_STEPS_MIN:
            return usual_unit_ms
        own_ms = wall_ms / (steps + HALF)
        return own_ms if abs(own_ms / usual_unit_ms - 1) > OWN_PACE_SHARE else usual_unit_ms
