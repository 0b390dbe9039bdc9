"""Remembers which hosts run what is over, and when that is to be told (again)."""

from __future__ import annotations

from typing import Final

from everstep.monitor.commands import ObserveStray
from everstep.monitor.policy import Limits

# Hosts that run what is over; after an outage of a whole fleet's agents at most all of them.
STRAYS_MAX: Final = 10_000

Run = tuple[str, int, str]  # job, generation, host


class Strays:
    """Runs that should have ended, each with the time from which it is one to tell of."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._due_ms: dict[Run, int] = {}

    def is_due(self, run: Run, now_ms: int) -> bool:
        """Note a run that is over; says whether to tell of it now."""
        if len(self._due_ms) > STRAYS_MAX:
            self._due_ms.clear()
        if now_ms < self._due_ms.setdefault(run, now_ms + self._limits.stray_ms):
            return False
        self._due_ms[run] = now_ms + self._limits.stray_again_ms
        return True

    def found(self, run: Run, newest: int | None, now_ms: int) -> ObserveStray | None:
        """Note a run that a host names; returns what to tell of it, if its job is beyond it.

        ``newest`` is the generation of the job now, None when it is over.
        """
        job_id, generation, host_id = run
        if newest is not None and newest <= generation:
            self.forget(run)
            return None
        if not self.is_due(run, now_ms):
            return None
        return ObserveStray(job_id=job_id, generation=generation, host_id=host_id, at_ms=now_ms)

    def forget(self, run: Run) -> None:
        """Drop a run that is none after all."""
        self._due_ms.pop(run, None)

    def forget_host(self, host_id: str) -> None:
        """Drop a host's."""
        for run in [run for run in self._due_ms if run[2] == host_id]:
            del self._due_ms[run]
