"""Finds how far a job is, from the monitor's curve and the controller's list of restarts.

The controller learns a step at a generation's first and at the job's last; between them only the
monitor knows. Its curve keeps the steps that a restart has gone back over: generation g that was
restored from step s goes on from s, and what an older generation did after s is no longer part of
the run. The steps after the last restore are of the newest generation up to where the job is, and
abandoned ones from there on, so the end of the present curve is found by halving: twenty questions
for a million steps, where reading the curve would take a hundred megabytes.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final, Protocol

from everstep.core.errors import EverstepError, NotFoundError

ENDED: Final = frozenset({"succeeded", "failed", "stopped"})
# Jobs of a listing whose step is asked of the monitor: a screen of them, each some ten questions of
# milliseconds. Jobs that have succeeded need none.
ASKED_MAX: Final = 30

Json = dict[str, Any]


class Curve(Protocol):
    """Has the steps of a job; ``cli.client.Client`` is one."""

    def metrics(self, job_id: str, *, after_step: int, limit: int) -> list[Json]:
        """Return steps after ``after_step`` in order, of each the newest generation's."""
        ...


class Jobs(Curve, Protocol):
    """Also has the jobs."""

    def job(self, job_id: str) -> Json:
        """Return the job with its restarts."""
        ...


def is_present(point: Json, job: Json) -> bool:
    """Say whether a step of the curve is still part of the run."""
    return all(
        point["step"] <= restart["restore_step"]
        for restart in _planned(job)
        if restart["generation"] > point["generation"]
    )


def restored_step(job: Json) -> int:
    """Return the step from which the job last went on; 0 when it began anew."""
    planned = _planned(job)
    return max(0, planned[-1]["restore_step"]) if planned else 0


def newest_point(curve: Curve, job: Json) -> Json | None:
    """Return the newest step that is part of the run; None before the first.

    Args:
        curve: is asked at most about twenty times.
        job: with its restarts, as the controller tells one job.

    Raises:
        EverstepError: the monitor does not answer, or refuses.
    """
    if not _planned(job):
        return None  # no rank has been started yet
    low, high = restored_step(job), max(job["steps"], restored_step(job))
    newest: Json | None = None
    while low < high:
        middle = (low + high) // 2
        found = curve.metrics(job["job_id"], after_step=middle, limit=1)
        if found and is_present(found[0], job):
            newest, low = found[0], found[0]["step"]
        else:
            high = middle
    if newest is None and low > 0:  # nothing yet since the restart: where it goes on from
        found = curve.metrics(job["job_id"], after_step=low - 1, limit=1)
        newest = next((p for p in found if p["step"] == low and is_present(p, job)), None)
    return newest


def current_step(curve: Curve, job: Json) -> int:
    """Return the step that a job is at.

    Raises:
        EverstepError: the monitor does not answer, or refuses.
    """
    if job["phase"] == "succeeded":
        return int(job["step"])  # the controller has heard the last step
    point = newest_point(curve, job)
    if point is not None:
        return int(point["step"])
    planned = _planned(job)
    comes_up = bool(planned) and planned[-1]["running_at_ms"] is None
    return restored_step(job) if comes_up else int(job["step"])


def with_current_step(curve: Curve, job: Json) -> Json:
    """Return the job with the step that it is at; as it was when the monitor is away."""
    try:
        return {**job, "step": current_step(curve, job)}
    except EverstepError:
        return job


def with_current_steps(source: Jobs, jobs: list[Json]) -> list[Json]:
    """Return a listing with the steps that its jobs are at, those that run first in line.

    The first question that is not answered ends the asking: a listing neither fails nor waits for
    a service that is away.
    """
    open_first = sorted(jobs, key=lambda job: job["phase"] in ENDED)
    asked = [job["job_id"] for job in open_first if job["phase"] != "succeeded"][:ASKED_MAX]
    steps: dict[str, int] = {}
    with contextlib.suppress(EverstepError):
        for job_id in asked:
            with contextlib.suppress(NotFoundError):  # one that the monitor has not heard of yet
                steps[job_id] = current_step(source, source.job(job_id))
    return [{**job, "step": steps.get(job["job_id"], job["step"])} for job in jobs]


def _planned(job: Json) -> list[Json]:
    """Return the generations that have a restore plan, oldest first."""
    return [one for one in job.get("recoveries", ()) if one["restore_step"] is not None]
