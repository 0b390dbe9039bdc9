"""Tells the monitor what must not be lost: exits, ready ranks, failed starts.

A report is a file until the bus has stored it, so neither the bus's absence nor the agent's death
loses one. They leave in order, one at a time; ids follow from what is reported, so a report that is
made twice (an exit that an agent stored and did not live to acknowledge) counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.agent.runs import Answer, JobRun, RankRun
from everstep.core.errors import EverstepError
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.service.commands import host_subject
from everstep.wire.v1.agents_pb2 import RANK_EXITED, START_FAILED, RankReport, RefusedSource

log = logging.getLogger(__name__)

# A host makes a handful a generation; a thousand is days of restarts with the bus away.
REPORTS_MAX: Final = 1_000
RETRY_S: Final = 0.5  # the bus reconnects by itself; this is only how soon we notice
ENDS: Final = (RANK_EXITED, START_FAILED)


class Reports:
    """The queue of one host's reports, on disk."""

    def __init__(self, directory: Path, host_id: str) -> None:
        self._directory = directory
        self._subject = host_subject(host_id, "report")
        self._wake = asyncio.Event()
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(directory.glob("*.report"))
        self._pending = deque((path, path.read_bytes()) for path in found)
        self._next = 1 + max((int(path.stem) for path in found), default=0)

    def add(self, report: RankReport) -> None:
        """Keep a report and send it as soon as possible."""
        path = self._directory / f"{self._next:012d}.report"
        self._next += 1
        temporary = path.with_suffix(".new")
        data = report.SerializeToString()
        temporary.write_bytes(data)
        temporary.replace(path)
        self._pending.append((path, data))
        if len(self._pending) > REPORTS_MAX:
            oldest, _ = self._pending.popleft()
            log.error("the bus is away and %d reports wait: %s dropped", REPORTS_MAX, oldest.name)
            oldest.unlink(missing_ok=True)
        self._wake.set()

    @property
    def pending_count(self) -> int:
        """How many wait."""
        return len(self._pending)

    def untold_ends(self, job_id: str, generation: int) -> set[int]:
        """Return the ranks of a generation whose ends are in reports that still wait.

        Heartbeats name them: who is neither alive nor reported would count as vanished.
        """
        waiting = (RankReport.FromString(data) for _, data in self._pending)
        return {
            report.rank
            for report in waiting
            if report.kind in ENDS and (report.job_id, report.generation) == (job_id, generation)
        }

    async def run(self, bus: Bus) -> None:
        """Send for ever."""
        while True:
            while self._pending:
                path, data = self._pending[0]
                await self._send(bus, data)
                if self._pending and self._pending[0][0] == path:  # not dropped meanwhile
                    self._pending.popleft()
                _remove(path)
            await self._wake.wait()
            self._wake.clear()

    async def _send(self, bus: Bus, data: bytes) -> None:
        report_id = RankReport.FromString(data).report_id
        while True:
            try:
                await bus.publish_durable(self._subject, data, message_id=report_id)
            except EverstepError as error:
                if not error.retryable:
                    log.warning("report %s cannot be told: %s", report_id, error)
                    return
                log.info("report %s waits: %s", report_id, error)
                await asyncio.sleep(RETRY_S)
            else:
                return


class RankReporter:
    """Makes reports about ranks; their ids follow from what they report."""

    def __init__(self, reports: Reports, host_id: str, agent_epoch: str, clock: Clock) -> None:
        self._reports = reports
        self._host_id = host_id
        self._agent_epoch = agent_epoch
        self._clock = clock

    def report(self, run: JobRun, rank: RankRun, kind: str, **fields: Any) -> None:
        """Report something of a rank.

        Args:
            run: the rank's generation.
            rank: whom it is about.
            kind: a name of ``ReportKind``.
            fields: any other fields of the message; ``at_ms`` is now unless given.
        """
        fields.setdefault("at_ms", self._clock.now_ms())
        name = f"{run.job_id}.{run.generation}.{rank.rank}.{rank.pid}"
        self._reports.add(
            RankReport(
                report_id=f"{self._host_id}.{name}.{kind.lower()}",
                host_id=self._host_id,
                agent_epoch=self._agent_epoch,
                job_id=run.job_id,
                generation=run.generation,
                rank=rank.rank,
                kind=kind,
                step=rank.last_step,
                **fields,
            )
        )


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def refused_messages(answer: Answer | None) -> list[RefusedSource]:
    """Return the sources that a rank's restore could not use, for the wire."""
    refused = answer.refused if answer is not None else ()
    return [RefusedSource(**msgspec.to_builtins(one)) for one in refused]
