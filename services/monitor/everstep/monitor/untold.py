"""Remembers which ranks have ended by the word of their hosts, whose reports are still to come.

A report goes to the bus's store and is sent again when that does not answer; heartbeats and answers
to probes do not wait for it. What they say of an end is not the end itself: why and when is in the
report.
"""

from __future__ import annotations

from collections.abc import Iterable

from everstep.wire.v1.agents_pb2 import RunningJob


class UntoldEnds:
    """The newest word of each host."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[tuple[str, int], frozenset[int]]] = {}

    def told(self, host_id: str, jobs: Iterable[RunningJob]) -> None:
        """Take what a host says of its jobs, in place of what it said before."""
        self._ranks[host_id] = {
            (job.job_id, job.generation): frozenset(job.untold) for job in jobs if job.untold
        }

    def ranks(self, hosts: Iterable[str], job_id: str, generation: int) -> frozenset[int]:
        """Return the ranks of a generation on ``hosts`` whose ends are still to be reported."""
        run = (job_id, generation)
        told = (self._ranks.get(host, {}).get(run, frozenset()) for host in hosts)
        return frozenset[int]().union(*told)
