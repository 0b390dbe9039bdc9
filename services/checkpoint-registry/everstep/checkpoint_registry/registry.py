"""Answers the registry's commands, and hears what the controller decides."""

from __future__ import annotations

import logging
from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.catalog import Catalog, CheckpointId
from everstep.checkpoint_registry.commands import (
    CheckpointCommand,
    HistoryCommand,
    NoteGeneration,
    NoteJob,
)
from everstep.checkpoint_registry.events import CheckpointEvent, HistoryEvent
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.state import Checkpoint, History
from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.core.ports import Consumed
from everstep.core.spec import parse_spec_json
from everstep.service.handler import Handler
from everstep.wire.v1 import checkpoints_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.jobs_pb2 import GenerationBegun, JobSubmitted

ENDINGS: Final = frozenset({"job_succeeded", "job_failed", "job_stopped"})

_log = logging.getLogger(__name__)


class Registry:
    """The service's commands, each looked up, decided and answered."""

    def __init__(
        self,
        checkpoints: Handler[CheckpointCommand, Checkpoint, CheckpointEvent],
        histories: Handler[HistoryCommand, History, HistoryEvent],
        catalog: Catalog,
        keeper: CheckpointKeeper,
        memory: MemoryMap,
    ) -> None:
        self._checkpoints = checkpoints
        self._histories = histories
        self._catalog = catalog
        self._keeper = keeper
        self._memory = memory

    async def report_shards(self, message: checkpoints_pb2.ReportShards) -> CommandReply:
        """Take an agent's report."""
        history = await self._histories.state(codec.history_stream(message.job_id))
        command = codec.report_shards(message, history.newest_generation)
        done = await self._checkpoints.handle(command)
        if done.rejected is not None:
            _log.warning("refused shards (%s): %s", done.rejected.why, done.rejected.detail)
        return codec.command_reply(done.rejected)

    async def plan_restore(
        self, message: checkpoints_pb2.PlanRestore
    ) -> checkpoints_pb2.PlanRestoreReply:
        """Make the plan of a generation, or give the one that was made."""
        complete = await self._catalog.complete(message.job_id)
        done = await self._histories.handle(codec.plan_restore(message, complete))
        if done.rejected is not None:
            _log.warning("refused a plan (%s): %s", done.rejected.why, done.rejected.detail)
        elif done.events:
            _log.info("planned: %s", done.events[-1])
        return codec.plan_restore_reply(done)

    async def list_steps(
        self, message: checkpoints_pb2.ListSteps
    ) -> checkpoints_pb2.ListStepsReply:
        """Return the steps of complete checkpoints that a restore may go back to."""
        history = await self._histories.state(codec.history_stream(message.job_id))
        steps = {
            known.step
            for known in await self._catalog.known(message.job_id)
            if known.complete
            and history.lineage.holds(generation=known.generation, step=known.step)
        }
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

    async def _submitted(self, event: JobSubmitted, consumed: Consumed) -> None:
        try:
            spec = parse_spec_json(event.spec_json)
        except InvalidInput as error:
            # Ours to read, not to judge: the controller has taken it. Defaults are kept then.
            _log.warning("job %s: cannot read its spec: %s", event.job_id, error)
            return
        sizes = spec.layout
        layout = Layout(
            pp=sizes.pp,
            dp_replicate=sizes.dp_replicate,
            dp_shard=sizes.dp_shard,
            tp=sizes.tp,
        )
        command = NoteJob(
            job_id=event.job_id,
            keep_last=spec.checkpoint.keep_last,
            layout=layout,
            at_ms=event.at_ms,
        )
        await self._histories.handle(command, consumed=consumed)

    async def _begun(self, event: GenerationBegun, consumed: Consumed) -> None:
        self._memory.forget_older(event.job_id, event.generation)
        command = NoteGeneration(
            job_id=event.job_id, generation=event.generation, at_ms=event.at_ms
        )
        await self._histories.handle(command, consumed=consumed)
