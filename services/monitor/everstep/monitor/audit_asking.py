"""Decides when a step of a job is done again by spare hosts, and asks the controller for it.

After every Nth complete checkpoint the next step is, one replica's share of it, replica after
replica: as a job of its own. One audit of a job at a time. One that tells nothing (there were no
spares, or a job wanted them) is no audit, and the next one is as good; only a difference waits for
another one of the same share: at once, when the first one's hosts are free, then at each complete
checkpoint, until ``NUMBER_MAX`` have been asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.monitor.audit_verdicts import heeds
from everstep.monitor.detectors.audit import Share, ranks_of, untold
from everstep.monitor.detectors.audit_course import OwnWorks
from everstep.monitor.events import AuditOf, Finding, StepAudited
from everstep.monitor.state import Watch
from everstep.wire.v1.checkpoints_pb2 import CheckpointCompleted
from everstep.wire.v1.jobs_pb2 import AuditStep

log = logging.getLogger(__name__)

ASK_MS_MAX: Final = 5_000  # an audit that was asked for is heard of within a second, if it lasts
NUMBER_MAX: Final = 4  # of one share: the first, and three attempts at a second one
RANKS_MAX: Final = 2_000  # of a replica: what each came to is in the audit's spec

AskAudit = Callable[[AuditStep], Awaitable[str]]  # returns why there is none, or ""
Asked = tuple[int, int, int]  # step, replica, number


@dataclass(slots=True)
class _Job:
    """One that is audited."""

    completed: int = 0  # checkpoints since the newest audit
    newest: tuple[int, int] = (0, 0)  # generation and step of the newest complete one
    asked: Asked | None = None  # and not heard of yet
    asked_ms: int = 0
    last: Asked = (0, 0, 0)  # the newest one that was asked for
    again: bool = False  # a second audit may be tried now
    too_many: bool = False  # ranks, as was said


def is_audited(watch: Watch) -> bool:
    """Whether a job asks for audits that could tell something."""
    wanted = watch.corruption.audit_every_checkpoints > 0 and watch.audit is None
    return wanted and heeds(watch.corruption)


class AuditAsking:
    """Of all jobs. Mutable: a new process counts checkpoints anew."""

    def __init__(self, ask_audit: AskAudit) -> None:
        self._ask_audit = ask_audit
        self._jobs: dict[str, _Job] = {}

    def completed(self, checkpoint: CheckpointCompleted) -> None:
        """Note that a checkpoint of a job that is audited can be loaded from now on."""
        job = self._jobs.setdefault(checkpoint.job_id, _Job())
        job.completed += 1
        job.newest = max(job.newest, (checkpoint.generation, checkpoint.step))
        job.again = True

    def answered(self, of: AuditOf) -> None:
        """Note that an audit has told, or will not."""
        job = self._jobs.get(of.job_id)
        if job is not None and job.asked == (of.step, of.replica, of.number):
            job.asked = None

    def may_again(self, job_id: str) -> None:
        """Let a second audit be tried: the first one differs, or its hosts are free."""
        self._jobs.setdefault(job_id, _Job()).again = True

    def job_ids(self, live: Collection[str]) -> list[str]:
        """Return the jobs to ask for, and forget those that are not live."""
        for job_id in self._jobs.keys() - set(live):
            del self._jobs[job_id]
        return sorted(self._jobs)

    async def ask(
        self, watch: Watch, own: OwnWorks, differed: Sequence[str], now_ms: int
    ) -> StepAudited | None:
        """Ask for an audit if one is due; none is under way.

        Args:
            watch: the job.
            own: what its ranks have come to.
            differed: what they had come to where an audit differs from it, if one does.
            now_ms: the time.

        Returns:
            That a difference stays open, because nobody has done the step a second time.
        """
        job = self._jobs[watch.job_id]
        if (job.asked is not None and now_ms - job.asked_ms < ASK_MS_MAX) or not _is_ready(watch):
            return None
        first = watch.audits.differing
        if first is None:
            if job.completed >= watch.corruption.audit_every_checkpoints:
                await self._ask_first(watch, job, own, now_ms)
            return None
        if not job.again:
            return None
        job.again = False
        number = 1 + max(
            first.number, job.last[2] if job.last[:2] == (first.step, first.replica) else 0
        )
        if number > NUMBER_MAX:
            return _given_up(watch, first, now_ms)
        await self._send(watch, job, (first.step, first.replica, number), differed, now_ms)
        return None

    async def _ask_first(self, watch: Watch, job: _Job, own: OwnWorks, now_ms: int) -> None:
        generation, step = job.newest
        layout = watch.full_layout
        run = own.run(generation, step + 1)
        if run is None or len(run.works) != layout.world_size:
            return  # not told yet, or never: then the next checkpoint is as good
        replica = watch.audits.shares % layout.dp_replicate
        ranks = ranks_of(layout, replica)
        if len(ranks) <= RANKS_MAX:
            works = [run.works[rank] for rank in ranks]
            await self._send(watch, job, (step, replica, 1), works, now_ms)
            job.completed = 0
        elif not job.too_many:
            job.too_many = True
            log.warning(
                "job %s: no step is done again: a replica has %d ranks, and %d at most can be told",
                watch.job_id,
                len(ranks),
                RANKS_MAX,
            )

    async def _send(
        self, watch: Watch, job: _Job, asked: Asked, works: Sequence[str], now_ms: int
    ) -> None:
        step, replica, number = job.last = asked
        command = AuditStep(
            job_id=watch.job_id,
            step=step,
            replica=replica,
            number=number,
            works=works,
            at_ms=now_ms,
            generation=watch.generation,
        )
        refused = await self._ask_audit(command)
        job.asked, job.asked_ms = (None if refused else asked), now_ms
        what = f"job {watch.job_id}: step {step + 1} of replica {replica}"
        if refused:
            log.info("%s is not done again: %s", what, refused)
        else:
            log.info("%s is to be done again by other hosts: number %d", what, number)


def _is_ready(watch: Watch) -> bool:
    """Whether a job runs with all its ranks, and may still be audited."""
    runs = watch.progressed and watch.restore_step is not None
    sound = watch.judged_generation < watch.generation and not watch.audits.given_up
    return runs and sound and watch.layout == watch.full_layout


def _given_up(watch: Watch, first: StepAudited, now_ms: int) -> StepAudited:
    """Leave a difference open that nobody has told more about."""
    share = Share(layout=watch.full_layout, step=first.step, replica=first.replica)
    audits = watch.audits
    why = untold(first.why, share, NUMBER_MAX - 1, ever_alike=audits.ever_alike, opens=audits.opens)
    return StepAudited(
        job_id=watch.job_id,
        step=first.step,
        replica=first.replica,
        number=NUMBER_MAX,
        audit_job_id=first.audit_job_id,
        hosts=first.hosts,
        ranks=first.ranks,
        finding=Finding.OPEN,
        why=why,
        at_ms=now_ms,
    )
