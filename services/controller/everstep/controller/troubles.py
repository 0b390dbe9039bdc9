"""Remembers why actions are being tried again, for whoever asks what a job waits for."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.controller.state import Job
from everstep.controller.waiting import Trouble
from everstep.core.errors import EverstepError
from everstep.core.system import Clock


class Troubles:
    """One of each job and action; gone with the process, like the tries themselves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, dict[str, Trouble]] = {}

    def note(self, job: Job, action: str, error: EverstepError) -> None:
        """An action did not work and is tried again; since when, if it is the first time."""
        known = self._found.setdefault(job.job_id, {})
        before = known.get(action)
        again = before is not None and before.generation == job.generation
        known[action] = Trouble(
            action=action,
            generation=job.generation,
            why=str(error),
            since_ms=before.since_ms if before is not None and again else self._clock.now_ms(),
        )

    def over(self, job_id: str, action: str) -> None:
        """An action has worked."""
        self._found.get(job_id, {}).pop(action, None)

    def of(self, job_id: str) -> Mapping[str, Trouble]:
        """Return what keeps a job from going on, by action."""
        return dict(self._found.get(job_id, {}))

    def forget(self, job_id: str) -> None:
        """Nobody drives the job any more."""
        self._found.pop(job_id, None)
