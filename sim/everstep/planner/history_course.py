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
from everstep.monitor.ledger import Cause
from everstep.planner.history import (
    CAUSES,
    PLANNED,
    STRAGGLER,
    Arrival,
    Failure,
    History,
    IdleLoss,
    LostHost,
    Spell,
    usual_ms,
    with_whole_restarts,
)

HALF: Final = 0.5  # of a step is done, on average, when something breaks
# A generation's own pace is believed when it is that of some steps, and plainly another one.
OWN_PACE_STEPS_MIN: Final = 10
OWN_PACE_SHARE: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One generation. Times are milliseconds since the epoch, None: not reached.

    ``failed_at_ms``, ``detected_at_ms``, ``kind`` and ``last_step`` are those of the incident that
    ended it; ``first_at_ms`` is when ``first_step`` was done. ``lost``: hosts that it goes without.
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
    notes: list[str] = field(default_factory=list)


def history_of(course: Course) -> History:
    """Return the history of a run as it was told.

    Raises:
        InvalidInput: the run has never trained.
    """
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
        measured={},
        notes=tuple(course.notes),
    )
    return replace(history, measured=_measured(history, course))


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
            )
        )
    return with_whole_restarts(failures, frozenset(broken_off))


def _ends(
    attempts: Sequence[Attempt],
) -> Iterator[tuple[Attempt, Attempt | None, Attempt | None]]:
    """Yield each generation that ended, its pause (if it was one), and what came after it."""
    i = 0
    while i + 1 < len(attempts) and attempts[i + 1].cause != "stop":
        rest = attempts[i + 1] if attempts[i + 1].cause == "pause" else None
        after = i + 1 if rest is None else i + 2
        yield attempts[i], rest, attempts[after] if after < len(attempts) else None
        i = after


def _kind(ended: Attempt, rest: Attempt | None, following: Attempt | None) -> str:
    if rest is not None:
        return "pause"
    if following is not None and following.cause in PLANNED:
        return following.cause
    return ended.kind or "host_lost"  # no incident: a host did not answer the fence or the start


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


def _measured(history: History, course: Course) -> dict[str, int]:
    """Return the observed ledger; where there is none, what the failures add up to."""
    if course.measured is not None:
        causes = {**dict.fromkeys(CAUSES, 0), **course.measured}
        if not causes[STRAGGLER]:  # the monitor lays slow steps under useful
            slow_ms = min(course.slow_ms, causes[Cause.USEFUL])
            causes[STRAGGLER] += slow_ms
            causes[Cause.USEFUL] -= slow_ms
        return causes
    failures = history.failures
    ends_ms = [*(failure.at_ms for failure in failures[1:]), history.wall_ms]
    causes = dict.fromkeys(CAUSES, 0)
    causes[Cause.STARTUP] = history.startup_ms
    causes[Cause.CHECKPOINT_STALL] = history.finish_ms
    causes[Cause.WAITING_FOR_HOSTS] = history.launch_waiting_ms
    for failure, end_ms in zip(failures, ends_ms, strict=False):  # without any there is one end
        left_ms = max(end_ms - failure.at_ms, 0)  # a restart may have been broken off
        for cause, ms in (
            (Cause.DETECTION, failure.detection_ms),
            (Cause.PAUSED, failure.paused_ms),
            (Cause.WAITING_FOR_HOSTS, failure.waiting_ms),
            (Cause.RESTART, failure.restart_ms),
        ):
            causes[cause] += min(ms, left_ms)
            left_ms -= min(ms, left_ms)
        causes[Cause.LOST_WORK] += failure.lost_work_ms
    trained_ms = history.wall_ms - sum(causes.values())
    stalls_ms = trained_ms // (history.interval_ms + history.stall_ms) * history.stall_ms
    causes[Cause.CHECKPOINT_STALL] += stalls_ms
    causes[Cause.USEFUL] = trained_ms - stalls_ms
    return causes
