"""Remembers whose snapshots no other host keeps, and why, by the newest word of each host.

Not events and not in the ledger: every second of such a job is as useful as before. What it costs
is told by the restore that finds no copy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from everstep.core.system import Clock
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import Heartbeat

log = logging.getLogger(__name__)

SILENT_MS_MAX: Final = 10_000  # ten heartbeats: what a host said before is not known to be so now


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncopied:
    """Ranks of a host, who should keep copies of them, and why it does not."""

    host_id: str
    ranks: tuple[int, ...]
    peer_host_id: str
    why: str
    since_ms: int


class UncopiedRanks:
    """The newest word of each host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[int, int, Uncopied]] = {}

    def heard(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat in place of the one before."""
        host_id, now_ms = heartbeat.host_id, self._clock.now_ms()
        said = {job.job_id: job for job in heartbeat.jobs if job.HasField("uncopied")}
        running = {job.job_id for job in heartbeat.jobs}
        for key in [key for key in self._told if key[0] == host_id and key[1] not in said]:
            del self._told[key]
            if key[1] in running:
                log.warning("job %s: snapshots of %s are copied again", key[1], host_id)
        for job_id, job in said.items():
            told = Uncopied(
                host_id=host_id,
                ranks=tuple(job.uncopied.ranks),
                peer_host_id=job.uncopied.peer_host_id,
                why=job.uncopied.why,
                since_ms=now_ms - job.uncopied.age_ms,
            )
            if (host_id, job_id) not in self._told:
                log.warning(
                    "job %s: %s keeps no copies of ranks %s of %s: %s",
                    job_id, told.peer_host_id, list(told.ranks), host_id, told.why,
                )  # fmt: skip
            self._told[host_id, job_id] = (now_ms, job.generation, told)

    def of(self, watch: Watch) -> tuple[Uncopied, ...]:
        """Return what hosts of a job's present generation have said lately, by host."""
        heard_ms = self._clock.now_ms() - SILENT_MS_MAX
        found = (self._told.get((host.host_id, watch.job_id)) for host in watch.hosts)
        told = (
            uncopied
            for at_ms, generation, uncopied in (one for one in found if one is not None)
            if at_ms >= heard_ms and generation == watch.generation
        )
        return tuple(sorted(told, key=lambda one: one.host_id))
