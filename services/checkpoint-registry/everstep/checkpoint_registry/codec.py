"""How the registry's events are stored, and its commands and answers on the wire.

Holdings and plans of 16,384 ranks are read and written field by field: the generic converter takes
a second for them (benchmarks/registry.py), which is the time a whole recovery has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from everstep.checkpoint_registry import commands, decider, events, state
from everstep.checkpoint_registry.policy import OWN
from everstep.core.decision import Rejected
from everstep.eventstore.codec import EventCodec
from everstep.service.handler import Aggregate, Handled
from everstep.wire.codec import from_wire
from everstep.wire.v1 import checkpoints_pb2
from everstep.wire.v1.common_pb2 import (
    OBJECT_STORE,
    OWN_MEMORY,
    PEER_MEMORY,
    CommandReply,
    HeldSnapshot,
    Outcome,
    RankRestore,
    RestoreSource,
)

CHECKPOINT_EVENTS: Final[EventCodec[events.CheckpointEvent]] = EventCodec(
    {
        "shards_stored.v1": events.ShardsStored,
        "shards_refused.v1": events.ShardsRefused,
        "checkpoint_completed.v1": events.CheckpointCompleted,
        "checkpoint_deleted.v1": events.CheckpointDeleted,
        "checkpoint_purged.v1": events.CheckpointPurged,
    }
)
HISTORY_EVENTS: Final[EventCodec[events.HistoryEvent]] = EventCodec(
    {
        "job_noted.v1": events.JobNoted,
        "generation_noted.v1": events.GenerationNoted,
        "source_distrusted.v1": events.SourceDistrusted,
        "restore_laid_out.v1": events.RestoreLaidOut,
        "restore_planned.v1": events.RestorePlanned,
    }
)


def checkpoint_stream(job_id: str, generation: int, step: int) -> str:
    """Name a checkpoint's stream."""
    return f"checkpoint-{job_id}-{generation}-{step}"


def history_stream(job_id: str) -> str:
    """Name the stream of a job's generations and restores."""
    return f"restore-{job_id}"


CHECKPOINTS: Final[
    Aggregate[commands.CheckpointCommand, state.Checkpoint, events.CheckpointEvent]
] = Aggregate(
    name="checkpoint",
    stream_of=lambda c: checkpoint_stream(c.job_id, c.generation, c.step),
    initial=state.Checkpoint,
    decide=decider.decide_checkpoint,
    evolve=state.evolve_checkpoint,
    codec=CHECKPOINT_EVENTS,
)
HISTORIES: Final[Aggregate[commands.HistoryCommand, state.History, events.HistoryEvent]] = (
    Aggregate(
        name="history",
        stream_of=lambda c: history_stream(c.job_id),
        initial=state.History,
        decide=decider.decide_history,
        evolve=state.evolve_history,
        codec=HISTORY_EVENTS,
    )
)

HistoryDone = Handled[state.History, events.HistoryEvent]


def report_shards(message: checkpoints_pb2.ReportShards) -> commands.ReportShards:
    """Read a report. Raises ``msgspec.ValidationError`` when a field does not fit."""
    return from_wire(message, commands.ReportShards)


def plan_restore(
    message: checkpoints_pb2.PlanRestore, checkpoints: tuple[commands.CompleteFacts, ...]
) -> commands.PlanRestore:
    """Read a request for a plan and add the job's complete checkpoints."""
    return commands.PlanRestore(
        job_id=message.job_id,
        generation=message.generation,
        world_size=message.world_size,
        holdings=tuple(
            commands.HostHoldings(
                host_id=host.host_id,
                address=host.address,
                peer_port=host.peer_port,
                held=_held(host.held),
            )
            for host in message.holdings
        ),
        from_step=message.from_step,
        at_ms=message.at_ms,
        checkpoints=checkpoints,
    )


def _held(held: Iterable[HeldSnapshot]) -> tuple[commands.HeldSnapshot, ...]:
    return msgspec.convert(list(held), tuple[commands.HeldSnapshot, ...], from_attributes=True)


def command_reply(rejected: Rejected | None) -> CommandReply:
    """Answer a command that has no reply of its own."""
    return CommandReply(outcome=outcome(rejected))


def outcome(rejected: Rejected | None) -> Outcome:
    """Say whether a command was accepted."""
    if rejected is None:
        return Outcome(accepted=True)
    return Outcome(accepted=False, why=rejected.why, detail=rejected.detail)


def plan_restore_reply(done: HistoryDone) -> checkpoints_pb2.PlanRestoreReply:
    """Answer from the state after the command, so that a repeated one gets the same plan."""
    if done.rejected is not None:
        return checkpoints_pb2.PlanRestoreReply(outcome=outcome(done.rejected), step=-1)
    plan = done.state.plan
    assert plan is not None, "a plan was accepted and is not in the history"
    return checkpoints_pb2.PlanRestoreReply(
        outcome=outcome(None),
        step=plan.step,
        restores=restores_of(plan),
        passed_over=done.state.passed_over,
    )


def restores_of(plan: events.RestoreLaidOut) -> list[RankRestore]:
    """Write every rank's sources out, by rank; none at all for a fresh start."""
    if plan.step < 0:
        return []
    memory = [
        RestoreSource(
            kind=OWN_MEMORY if kind == OWN else PEER_MEMORY,
            host_id=holder.host_id,
            address=holder.address,
            peer_port=holder.peer_port,
            generation=holder.generation,
        )
        for holder in plan.holders
        for kind in (0, 1)
    ]
    stored = {
        shard.rank: RestoreSource(
            kind=OBJECT_STORE,
            uri=shard.uri,
            checksum=shard.checksum,
            bytes=shard.bytes,
            generation=plan.shards_generation,
        )
        for shard in plan.shards
    }
    return [
        RankRestore(
            rank=rank,
            sources=[
                *(memory[source] for source in sources),
                *((stored[rank],) if rank in stored else ()),
            ],
        )
        for rank, sources in enumerate(plan.memory)
    ]
