"""Keeps collective errors that are told before the controller's word of their generation has come.

Like all evidence of echoes it is lost with the process: that ranks have ended is found then by
their absence.
"""

from __future__ import annotations

from typing import Final

from everstep.monitor.commands import ObserveExit
from everstep.monitor.detectors.root_cause import Echo

# Chosen: jobs that begin a generation within the seconds by which the word of it may be late. Each
# has one echo a rank at most, 16,384 of some hundred bytes.
JOBS_MAX: Final = 16


def echo_of(command: ObserveExit) -> Echo:
    """Return a report of a collective error as evidence."""
    return Echo(
        rank=command.rank, host_id=command.host_id, at_ms=command.at_ms, error=command.error
    )


class EarlyEchoes:
    """Of the newest generation of each job that anybody has told of."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[int, dict[int, Echo]]] = {}

    def keep(self, command: ObserveExit) -> None:
        """Keep an echo until its generation has begun; the job heard of first gives way."""
        generation, echoes = self._jobs.get(command.job_id, (0, {}))
        if command.generation < generation:
            return
        if command.generation > generation:
            echoes = {}
        echoes.setdefault(command.rank, echo_of(command))
        self._jobs[command.job_id] = (command.generation, echoes)
        if len(self._jobs) > JOBS_MAX:
            del self._jobs[next(iter(self._jobs))]

    def take(self, job_id: str, generation: int) -> tuple[Echo, ...]:
        """Return what was kept of a generation, once; nothing of an older one is wanted then."""
        told, echoes = self._jobs.get(job_id, (0, {}))
        if told > generation:
            return ()
        self._jobs.pop(job_id, None)
        return tuple(echoes.values()) if told == generation else ()
