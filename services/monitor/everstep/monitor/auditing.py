"""Follows steps of jobs that spare hosts do again, and says what came of them.

An audit is a job of its own, whose spec says what the other job's ranks had come to: so whoever
hears its ranks can compare. When one is asked for is decided in ``audit_asking.py``, what is
concluded in ``detectors/audit.py``, what is done about it in ``audit_verdicts.py``; this file only
carries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from everstep.core.system import Clock, IdSource
from everstep.monitor.audit_asking import AuditAsking, is_audited
from everstep.monitor.audit_verdicts import Sentence, heeds, sentence, sound_step
from everstep.monitor.codec import watch_stream
from everstep.monitor.commands import Command, NoteAudit, OpenIncident
from everstep.monitor.corrupting import found_later, hosts_of
from everstep.monitor.detectors.audit import (
    Conclusion,
    Run,
    Share,
    conclude,
)
from everstep.monitor.detectors.audit_course import OwnWorks
from everstep.monitor.detectors.remade import Broken
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import (
    SILENT_CORRUPTION,
    Action,
    AuditOf,
    Event,
    Finding,
    StepAudited,
)
from everstep.monitor.opening import open_incident
from everstep.monitor.state import Watch
from everstep.monitor.watcher import Watcher
from everstep.service.handler import Handler
from everstep.wire.v1.agents_pb2 import StepMetrics
from everstep.wire.v1.checkpoints_pb2 import CheckpointCompleted

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5  # nobody waits for an audit
# An audit's ranks tell before they end. What was lost is asked for, and given up with its hosts.
QUESTIONS_MAX: Final = 5
JOBS_MAX: Final = 256  # of which works are kept, the newest told of: live ones, and their audits

AskRecompute = Callable[[Watch, int], Awaitable[None]]
# Of a host: what it knows of a job's steps after one.
AskSteps = Callable[[str, str, int], Awaitable[Sequence[StepMetrics]]]


@dataclass(slots=True)
class _Audit:
    of_job: str = ""
    questions: int = 0
    concluded: tuple[StepAudited, Conclusion] | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """An audit whose ranks have all told."""

    audit: Watch
    of: AuditOf
    run: Run
    audited: Watch

    @property
    def share(self) -> Share:
        return Share(layout=self.of.layout, step=self.of.step, replica=self.of.replica)


@dataclass(slots=True)
class Auditing:
    """Of all jobs. Mutable: what is lost with the process is not audited, or once more."""

    handler: Handler[Command, Watch, Event]
    watcher: Watcher
    asking: AuditAsking
    ask_recompute: AskRecompute
    ask_steps: AskSteps
    clock: Clock
    ids: IdSource
    _works: OrderedDict[str, OwnWorks] = field(default_factory=OrderedDict)
    _audits: dict[str, _Audit] = field(default_factory=dict)

    def told(self, metrics: StepMetrics) -> None:
        """Take a host's word of its ranks' steps, for the first time or again."""
        watch = self.watcher.watches.get(metrics.job_id)
        if watch is not None and watch.audit is None and not is_audited(watch):
            return  # most jobs: their words are not looked into
        own = [rank for rank in metrics.ranks if rank.checked.HasField("own")]
        if own:
            works = self._works_of(metrics.job_id) if watch is None else self._begin(watch)
            works.told(metrics.generation, own)

    def completed(self, checkpoint: CheckpointCompleted) -> None:
        """Note that a checkpoint can be loaded from now on."""
        watch = self.watcher.watches.get(checkpoint.job_id)
        if watch is not None and is_audited(watch):
            self.asking.completed(checkpoint)

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take up what has been told, and ask for what is due. Raises Unavailable, Conflict."""
        now_ms = self.clock.now_ms()
        live = self.watcher.watches
        for one in list(live.values()):
            if one.audit is not None:
                self._audits.setdefault(one.job_id, _Audit())
            elif is_audited(one):
                self._begin(one)
        for audit_id in list(self._audits):
            await self._look_at(audit_id, self._audits[audit_id], now_ms)
        for job_id in self.asking.job_ids(live):
            watch = live.get(job_id)
            if watch is not None:
                await self._ask(watch, now_ms)

    async def _ask(self, watch: Watch, now_ms: int) -> None:
        """Have a step done again, if one is due and none is under way."""
        audits = self._audits.values()
        if any(one.of_job == watch.job_id and not one.done for one in audits):
            return
        differing = watch.audits.differing
        works: tuple[str, ...] = ()
        if differing is not None:
            first = await self.handler.state(watch_stream(differing.audit_job_id))
            assert first.audit is not None, f"{differing.audit_job_id} has told of a step as one"
            works = first.audit.works
        told = self._works_of(watch.job_id)
        found = await self.asking.ask(watch, told, works, now_ms)
        if found is not None:
            await self._note(NoteAudit(found=found))

    def _begin(self, watch: Watch) -> OwnWorks:
        works = self._works_of(watch.job_id)
        hosts = () if works.knows(watch.generation) else hosts_of(watch)
        works.begin(watch.generation, hosts, watch.restore_step)
        return works

    def _works_of(self, job_id: str) -> OwnWorks:
        works = self._works.setdefault(job_id, OwnWorks())
        self._works.move_to_end(job_id)
        while len(self._works) > JOBS_MAX:
            self._works.popitem(last=False)
        return works

    async def _look_at(self, audit_id: str, known: _Audit, now_ms: int) -> None:
        """See what has become of an audit; it is followed until it has ended."""
        audit = await self.handler.state(watch_stream(audit_id))
        of = audit.audit
        assert of is not None, f"{audit_id} was seen to be one"
        known.of_job = of.job_id
        if not known.done:
            known.done = await self._is_done(audit, of, known, now_ms)
            if known.done:
                self.asking.answered(of)
        if known.done and audit.over:
            del self._audits[audit_id]
            if known.concluded is not None:
                self.asking.may_again(of.job_id)  # its hosts are free again

    async def _is_done(self, audit: Watch, of: AuditOf, known: _Audit, now_ms: int) -> bool:
        audited = await self.handler.state(watch_stream(of.job_id))
        if (audit.job_id, of.number) in audited.audits.told or not heeds(audited.corruption):
            return True
        own = self._begin(audit)
        if audit.over and known.questions < QUESTIONS_MAX:
            known.questions += 1
            await self._ask_silent(audit, own, of.step)
        run = own.run(audit.generation, of.step + 1)
        if run is not None:
            told = _Told(audit=audit, of=of, run=run, audited=audited)
            if known.concluded is None:
                if _went_back(told):
                    log.info("job %s: it has made step %d anew since", of.job_id, of.step + 1)
                    return True
                known.concluded = self._conclude(told, now_ms)
            return await self._pronounce(told, *known.concluded, now_ms)
        if not audit.over or known.questions < QUESTIONS_MAX:
            return False
        log.info("job %s: audit %s has ended and told nothing", of.job_id, audit.job_id)
        return True

    async def _ask_silent(self, audit: Watch, own: OwnWorks, step: int) -> None:
        """Ask the hosts of an audit that has ended for what they have not told of its step."""
        silent = own.silent(audit.generation, step + 1)
        answers = await asyncio.gather(
            *(self.ask_steps(host_id, audit.job_id, step) for host_id in silent)
        )
        for answer in answers:
            for metrics in answer:
                self.told(metrics)

    def _conclude(self, told: _Told, now_ms: int) -> tuple[StepAudited, Conclusion]:
        """Return what an audit comes to, as it is stored and as it was concluded."""
        of, audits = told.of, told.audited.audits
        before = audits.second_of(of.step, of.replica)
        first = Run(works=of.works, hosts=before.owners if before else self._owners(told))
        runs = [Run(works=before.works, hosts=before.seats)] if before else []
        ever_alike, opens = audits.ever_alike, audits.opens
        found = conclude(first, [*runs, told.run], told.share, ever_alike=ever_alike, opens=opens)
        differs = found.finding is Finding.DIFFERS
        event = StepAudited(
            job_id=of.job_id,
            step=of.step,
            replica=of.replica,
            number=of.number,
            audit_job_id=told.audit.job_id,
            hosts=tuple(sorted(set(told.run.hosts))),
            ranks=found.ranks,
            finding=found.finding,
            why=found.why,
            at_ms=now_ms,
            works=told.run.works if differs else (),
            seats=told.run.hosts if differs else (),
            owners=first.hosts if differs or not found.ranks else (),
        )
        return event, found

    async def _pronounce(
        self, told: _Told, event: StepAudited, found: Conclusion, now_ms: int
    ) -> bool:
        """Store it, and do what follows; says whether the job's generation allows it now."""
        incident = None
        if found.host:
            then = self._sentence(told, found, now_ms)
            if then is None:
                return False
            if then.condemned:
                await self._condemn(found, told.of.job_id, now_ms)
            if then.verdict is not None:
                incident = self._opening(told.audited, then.verdict, now_ms)
        asked_in = told.of.generation
        return await self._note(NoteAudit(found=event, incident=incident, asked_in=asked_in))

    def _sentence(self, told: _Told, found: Conclusion, now_ms: int) -> Sentence | None:
        audited, share = told.audited, told.share
        detecting = self.watcher.detecting.get(audited.job_id)
        course = detecting.rechecking.course if detecting is not None else None
        return sentence(
            found,
            audited,
            sound=sound_step(audited.audits, share, course, found.host),
            step=max(self._step_of(audited.job_id), share.step + 1),
            undone=_went_back(told),
            now_ms=now_ms,
        )

    async def _note(self, command: NoteAudit) -> bool:
        """Store a finding, with the incident; says whether the job's generation allowed it."""
        handled = await self.handler.handle(command)
        if handled.rejected is not None:
            return False
        found = command.found
        for _ in handled.events[:1]:
            log.log(
                logging.INFO if found.finding is Finding.ALIKE else logging.WARNING,
                "job %s: audit: %s",
                found.job_id,
                found.why,
            )
            await self.watcher.refresh(found.job_id)
            live = self.watcher.watches.get(found.job_id)
            if live is not None and found.finding is Finding.OPEN:
                for rank in found.ranks[:1]:
                    await self.ask_recompute(live, rank)
        if found.finding is Finding.DIFFERS:
            self.asking.may_again(found.job_id)
        return True

    async def _condemn(self, found: Conclusion, job_id: str, now_ms: int) -> None:
        """Take a host out of service, and other jobs off it that it may serve by now."""
        alone = Verdict(
            kind=SILENT_CORRUPTION,
            action=Action.REPLACE,
            ranks=(),
            hosts=(found.host,),
            reason=f"in an audit of job {job_id}: {found.why}",
            failed_at_ms=now_ms,
        )
        await self.handler.handle(open_incident(alone, self.ids.new_id("i"), "", 0, 0, now_ms))
        for other in self.watcher.jobs_on(found.host):
            watch = self.watcher.watches[other]
            if watch.audit is not None:
                continue
            ranks = next(host.ranks for host in watch.hosts if host.host_id == found.host)
            broken = Broken(
                step=self._step_of(other),
                ranks=ranks,
                host=found.host,
                agreed=True,
                reason=alone.reason,
            )
            for verdict in found_later(broken, watch, now_ms):
                await self.handler.handle(self._opening(watch, verdict, now_ms))
                await self.watcher.refresh(other)

    def _opening(self, watch: Watch, verdict: Verdict, now_ms: int) -> OpenIncident:
        incident_id = self.ids.new_id("i")
        job_id, generation = watch.job_id, watch.generation
        return open_incident(verdict, incident_id, job_id, generation, verdict.step, now_ms)

    def _step_of(self, job_id: str) -> int:
        detecting = self.watcher.detecting.get(job_id)
        return 0 if detecting is None else detecting.numerics.step

    def _owners(self, told: _Told) -> tuple[str, ...]:
        """Return where the job's ranks had come to their works; "" each if nobody knows."""
        of, audited, ranks = told.of, told.audited, told.share.ranks
        works = self._works.get(of.job_id)
        known = works.hosts_of(of.step + 1, ranks, of.works) if works is not None else ()
        if known:
            return known
        # Another process has heard them, of the generation that runs now if that has made the step:
        # before the audit was asked for, or the step would have been undone since.
        here, restored = hosts_of(audited), audited.restore_step
        if here and restored is not None and restored <= of.step:
            return tuple(here[rank] for rank in ranks)
        return ("",) * len(ranks)


def _went_back(told: _Told) -> bool:
    """Whether the job has undone the step since its audit was asked for."""
    return told.audited.audits.went_back(told.of.step, told.of.generation)
