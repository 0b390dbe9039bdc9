"""What lies in which host's memory, as the hosts tell with every step.

For people, and for plans that nobody carries out: a restore is planned from what fenced hosts say.
Kept in memory only, the newest message of each host, and forgotten when the job ends.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from google.protobuf.message import DecodeError

from everstep.checkpoint_registry.commands import HeldSnapshots, HostHoldings
from everstep.core.ports import Message
from everstep.wire.v1.agents_pb2 import StepMetrics

SUBJECT: Final = "everstep.v1.host.*.metrics"

_log = logging.getLogger(__name__)


class MemoryMap:
    """The newest holdings of every host, by job."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, StepMetrics]] = {}

    async def receive(self, message: Message) -> None:
        """Take a host's metrics; older generations and what cannot be read are dropped."""
        try:
            metrics = StepMetrics.FromString(message.data)
        except DecodeError:
            _log.warning("unreadable metrics on %s", message.subject)
            return
        hosts = self._told.setdefault(metrics.job_id, {})
        known = hosts.get(metrics.host_id)
        age = (metrics.generation, metrics.at_ms)
        if known is None or (known.generation, known.at_ms) <= age:
            metrics.ClearField("ranks")  # not ours, and most of the message
            hosts[metrics.host_id] = metrics

    def forget(self, job_id: str) -> None:
        """The job has ended."""
        self._told.pop(job_id, None)

    def forget_older(self, job_id: str, generation: int) -> None:
        """The job has begun a generation: hosts that do not serve it will not tell again."""
        hosts = self._told.get(job_id, {})
        for host_id in [h for h, told in hosts.items() if told.generation < generation - 1]:
            del hosts[host_id]

    def holdings(self, job_id: str) -> tuple[HostHoldings, ...]:
        """Return what each host holds, as a request for a plan says it; addresses are not known."""
        return tuple(
            HostHoldings(
                host_id=host_id,
                address="",
                peer_port=0,
                held=tuple(
                    HeldSnapshots(
                        step=held.step,
                        generation=held.generation,
                        own=held.own,
                        ranks=tuple(sorted(held.ranks)),
                    )
                    for held in told.held
                ),
            )
            for host_id, told in sorted(self._told.get(job_id, {}).items())
        )

    def of_job(self, job_id: str) -> dict[str, Any]:
        """Return the copies of every rank, and the newest step that all of these ranks have."""
        copies: dict[int, list[dict[str, Any]]] = {}
        steps: dict[int, set[int]] = {}
        for host_id, told in sorted(self._told.get(job_id, {}).items()):
            for held in told.held:
                copy = {
                    "host_id": host_id,
                    "step": held.step,
                    "own": held.own,
                    "generation": held.generation,
                    "told_at_ms": told.at_ms,
                }
                for rank in held.ranks:
                    copies.setdefault(rank, []).append(copy)
                    steps.setdefault(rank, set()).add(held.step)
        common = set.intersection(*steps.values()) if steps else set()
        return {
            "job_id": job_id,
            "common_step": max(common, default=None),
            "ranks": [{"rank": rank, "copies": copies[rank]} for rank in sorted(copies)],
        }
