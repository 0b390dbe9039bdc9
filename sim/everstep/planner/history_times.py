"""Refuses records whose times make no sense, before anything is worked out from them.

A clock that is hours off, a file that was edited, or two runs in one file: whatever would be said
of such a record would look like an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from everstep.core.errors import InvalidInput
from everstep.core.time import HOUR_MS

if TYPE_CHECKING:
    from everstep.planner.history_course import Attempt, Course

SKEW_MS: Final = HOUR_MS  # chosen: hosts without a common clock are minutes apart, not hours
WALL_MS_MAX: Final = 10 * 365 * 24 * HOUR_MS  # chosen: no run takes ten years
STEP_MAX: Final = 2**63 - 1
_TIMES: Final = {
    "begun_at_ms": "begins",
    "short_at_ms": "is short of hosts",
    "placed_at_ms": "is placed",
    "first_at_ms": "makes its first step",
    "paused_at_ms": "rests",
    "failed_at_ms": "fails",
    "detected_at_ms": "is found to have failed",
    "over_at_ms": "ends the job",
}


def refuse_absurd(course: Course) -> None:
    """Look at all times and steps of a run as it was told.

    Raises:
        InvalidInput: naming the first that makes no sense.
    """
    wall_ms = course.end_ms - course.submitted_at_ms
    if not 0 <= wall_ms <= WALL_MS_MAX:
        _refuse(course, f"it ends {_long(wall_ms)} after its submission")
    for attempt, following in pairwise(course.attempts):
        if following.begun_at_ms < attempt.begun_at_ms:
            _refuse(
                course,
                f"generation {following.generation} begins "
                f"{_long(attempt.begun_at_ms - following.begun_at_ms)} before generation "
                f"{attempt.generation}",
            )
    for what, at_ms in _moments(course):
        after_ms = at_ms - course.submitted_at_ms
        if after_ms < -SKEW_MS:
            _refuse(course, f"{what} {_long(-after_ms)} before the job's submission")
        if after_ms > wall_ms + SKEW_MS:
            _refuse(course, f"{what} {_long(after_ms - wall_ms)} after the record's end")
    for attempt in course.attempts:
        _refuse_order(course, attempt)
    if course.measured is not None and min(course.measured.values(), default=0) < 0:
        _refuse(course, "a share of its time is negative")


def _moments(course: Course) -> Iterator[tuple[str, int]]:
    for attempt in course.attempts:
        for name, does in _TIMES.items():
            at_ms = getattr(attempt, name)
            if at_ms is not None:
                yield f"generation {attempt.generation} {does}", at_ms
    for at_ms, host_id in course.idle_losses:
        yield f"host {host_id} breaks", at_ms
    for generation, step, at_ms in course.completed:
        yield f"the checkpoint of step {step} of generation {generation} is complete", at_ms
    for at_ms, memory_steps, _ in course.cadences:
        yield f"an interval of {memory_steps} steps comes into force", at_ms


def _refuse_order(course: Course, attempt: Attempt) -> None:
    failed_ms, detected_ms = attempt.failed_at_ms, attempt.detected_at_ms
    if failed_ms is not None and detected_ms is not None and detected_ms < failed_ms - SKEW_MS:
        _refuse(
            course,
            f"generation {attempt.generation} is found to have failed "
            f"{_long(failed_ms - detected_ms)} before it fails",
        )
    for step in (attempt.restore_step, attempt.first_step, attempt.last_step):
        if step is not None and not -1 <= step <= STEP_MAX:
            _refuse(course, f"generation {attempt.generation} tells of step {step}")


def _refuse(course: Course, why: str) -> None:
    raise InvalidInput(
        f"the times of the record of {course.job_id} make no sense: {why}; nothing is worked out "
        "from it"
    )


def _long(ms: int) -> str:
    """Return a length of time in the largest unit that says something."""
    for name, unit_ms in (("days", 24 * HOUR_MS), ("hours", HOUR_MS), ("minutes", 60_000)):
        if abs(ms) >= 2 * unit_ms:
            return f"{ms / unit_ms:,.0f} {name}"
    return f"{ms / 1_000:,.1f} s"
