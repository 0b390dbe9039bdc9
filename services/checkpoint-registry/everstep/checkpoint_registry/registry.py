"""Answers the registry's commands, and hears what the controller decides."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.auditing import Audits
from everstep.checkpoint_registry.catalog import Catalog, CheckpointId
from everstep.checkpoint_registry.commands import (
    CheckpointCommand,
    DistrustSource,
    HistoryCommand,
    NoteGeneration,
    NoteJob,
    ReportShards,
    TakeReports,
)
from everstep.checkpoint_registry.decider import decide_checkpoint
from everstep.checkpoint_registry.events import CheckpointEvent, HistoryEvent
from everstep.checkpoint_registry.judgements import Judgements
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.looking import Looks
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.policy import ONLY_SUSPECT
from everstep.checkpoint_registry.retention import unseen_steps
from everstep.checkpoint_registry.state import Checkpoint, History
from everstep.core.decision import Rejected
from everstep.core.elastic import full_layout
from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.ports import Consumed
from everstep.core.spec import parse_spec_json
from everstep.service.grouping import Grouped
from everstep.service.handler import Handler
from everstep.wire.v1 import checkpoints_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.incidents_pb2 import SourceRefused
from everstep.wire.v1.jobs_pb2 import GenerationBegun, JobSubmitted

# Some 100 ms in one transaction: a restore plan that comes meanwhile waits no longer than that.
REPORTS_MAX: Final = 64
# Causes of generations before which the ranks of the one before end after a last common step.
RESTS: Final = frozenset({"pause", "stop"})  # no rank of it ever runs
MOVES: Final = frozenset({"drain", "grow"})
ENDINGS: Final = frozenset({"job_succeeded", "job_failed", "job_stopped"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """What a batch of reports was decided on, and led to."""

    checkpoints: Mapping[CheckpointId, Checkpoint]
    histories: Mapping[str, History]


class Registry:
    """The service's commands, each looked up, decided and answered."""

    def __init__(
        self,
        checkpoints: Handler[CheckpointCommand, Checkpoint, CheckpointEvent],
        histories: Handler[HistoryCommand, History, HistoryEvent],
        catalog: Catalog,
        keeper: CheckpointKeeper,
        memory: MemoryMap,
        judgements: Judgements,
        looks: Looks,
        audits: Audits,
    ) -> None:
        self.judgements = judgements
        self.looks = looks
        self.audits = audits
        self._checkpoints = checkpoints
        self._histories = histories
        self._catalog = catalog
        self._keeper = keeper
        self._memory = memory
        self._reports: Grouped[ReportShards, _Taken] = Grouped(
            self._take_reports, batch_max=REPORTS_MAX
        )

    async def report_shards(self, message: checkpoints_pb2.ReportShards) -> CommandReply:
        """Take an agent's report, together with those that arrive now.

        The answer is what the report would be told again, after all of them.
        """
        report = codec.report_shards(message)
        taken = await self._reports.put(report)
        known = _among(report, taken.histories[report.job_id])
        decision = decide_checkpoint(known, taken.checkpoints[_which(report)])
        refused = decision if isinstance(decision, Rejected) else None
        if refused is not None:
            _log.warning("refused shards (%s): %s", refused.why, refused.detail)
        return codec.command_reply(refused)

    async def plan_restore(
        self, message: checkpoints_pb2.PlanRestore
    ) -> checkpoints_pb2.PlanRestoreReply:
        """Make the plan of a generation, or give the one that was made.

        Raises:
            Unavailable: whatever could be loaded is suspect. A refusal would end the job; so it is
                asked again, and goes on when a person has spoken.
        """
        known = await self._catalog.known(message.job_id)
        complete = await self._catalog.complete(message.job_id)
        unfinished = tuple(one for one in known if not one.complete)
        done = await self._histories.handle(codec.plan_restore(message, complete, unfinished))
        if done.rejected is not None:
            if done.rejected.why == ONLY_SUSPECT:
                raise Unavailable(done.rejected.detail)
            _log.warning("refused a plan (%s): %s", done.rejected.why, done.rejected.detail)
        elif done.events:
            _log.info("planned: %s", done.events[-1])
        return codec.plan_restore_reply(done)

    async def history(self, job_id: str) -> History:
        """Return the job's generations and restores; an empty one of a job nobody has heard of."""
        return await self._histories.state(codec.history_stream(job_id))

    async def list_steps(
        self, message: checkpoints_pb2.ListSteps
    ) -> checkpoints_pb2.ListStepsReply:
        """Return the steps of complete checkpoints that a restore may go back to."""
        steps = {known.step for known in await self.looks.restorable(message.job_id)}
        return checkpoints_pb2.ListStepsReply(outcome=Outcome(accepted=True), steps=sorted(steps))

    async def drop_job_checkpoints(
        self, message: checkpoints_pb2.DropJobCheckpoints
    ) -> CommandReply:
        """Delete all of a job's checkpoints; their objects go in the background."""
        for known in await self._catalog.known(message.job_id):
            which = CheckpointId(
                job_id=message.job_id, step=known.step, generation=known.generation
            )
            await self._keeper.delete(which, "dropped")
        return codec.command_reply(None)

    async def on_controller_event(self, envelope: EventEnvelope, consumed: Consumed) -> None:
        """Learn a job's spec and generations; forget the memory map of one that has ended."""
        kind = envelope.WhichOneof("payload")
        if kind == "job_submitted":
            await self._submitted(envelope.job_submitted, consumed)
        elif kind == "generation_begun":
            await self._begun(envelope.generation_begun, consumed)
        elif kind in ENDINGS:
            self._memory.forget(getattr(envelope, kind).job_id)

    async def on_monitor_event(self, envelope: EventEnvelope, consumed: Consumed) -> None:
        """Distrust what a host could not use, and suspect what a numerical incident is about."""
        match envelope.WhichOneof("payload"):
            case "source_refused":
                await self._refused(envelope.source_refused, consumed)
            case "incident_opened":
                await self.judgements.incident_opened(envelope.incident_opened, consumed)
            case "incident_recovered":
                recovered = envelope.incident_recovered
                await self.judgements.incident_ended(
                    recovered.job_id,
                    recovered.incident_id,
                    why="",
                    at_ms=recovered.recovered_at_ms,
                    consumed=consumed,
                )
            case "incident_closed":
                closed = envelope.incident_closed
                await self.judgements.incident_ended(
                    closed.job_id,
                    closed.incident_id,
                    why=closed.why or "closed",
                    at_ms=closed.closed_at_ms,
                    consumed=consumed,
                )
            case _:
                pass

    async def _refused(self, refused: SourceRefused, consumed: Consumed) -> None:
        command = DistrustSource(
            job_id=refused.job_id,
            generation=refused.generation,
            rank=refused.rank,
            step=refused.step,
            host_id="" if refused.uri else refused.host_id,
            uri=refused.uri,
            detail=refused.detail,
            at_ms=refused.at_ms,
        )
        await self._histories.handle(command, consumed=consumed)

    async def _take_reports(self, reports: Sequence[ReportShards]) -> _Taken:
        histories: dict[str, History] = {}
        for job_id in {report.job_id for report in reports}:
            histories[job_id] = await self._histories.state(codec.history_stream(job_id))
        together: dict[CheckpointId, list[ReportShards]] = {}
        for report in reports:
            known = _among(report, histories[report.job_id])
            together.setdefault(_which(report), []).append(known)
        checkpoints = {}
        for which, known_reports in together.items():
            command = TakeReports(
                job_id=which.job_id,
                step=which.step,
                generation=which.generation,
                reports=tuple(known_reports),
            )
            checkpoints[which] = (await self._checkpoints.handle(command)).state
        return _Taken(checkpoints=checkpoints, histories=histories)

    async def _submitted(self, event: JobSubmitted, consumed: Consumed) -> None:
        try:
            spec = parse_spec_json(event.spec_json)
        except InvalidInput as error:
            # Ours to read, not to judge: the controller has taken it. Defaults are kept then.
            _log.warning("job %s: cannot read its spec: %s", event.job_id, error)
            return
        command = NoteJob(
            job_id=event.job_id,
            keep_last=spec.checkpoint.keep_last,
            keep_days=spec.checkpoint.keep_days,
            unseen_steps=unseen_steps(spec),
            layout=full_layout(spec),
            at_ms=event.at_ms,
        )
        await self._histories.handle(command, consumed=consumed)

    async def _begun(self, event: GenerationBegun, consumed: Consumed) -> None:
        if event.cause in RESTS:
            return  # the last checkpoint of the one before is wanted
        self._memory.forget_older(event.job_id, event.generation)
        if event.cause in MOVES:
            return  # here too: its plan fences the one before, once all that is stored
        command = NoteGeneration(
            job_id=event.job_id,
            generation=event.generation,
            at_ms=event.at_ms,
            from_step=event.from_step,
        )
        await self._histories.handle(command, consumed=consumed)


def _among(report: ReportShards, history: History) -> ReportShards:
    """Return a report with what is known of its job's generations."""
    return replace(
        report,
        newest_generation=history.newest_generation,
        kept_to_step=history.lineage.kept_to(report.generation),
    )


def _which(report: ReportShards) -> CheckpointId:
    return CheckpointId(job_id=report.job_id, step=report.step, generation=report.generation)
