"""How the registry's events are stored, and its commands and answers on the wire.

Holdings and plans of 16,384 ranks are read and written field by field: the generic converter takes
a second for them (benchmarks/registry.py), which is the time a whole recovery has.
"""

from __future__ import annotations

from typing import Final

from everstep.checkpoint_registry import commands, decider, events, state, upcasting
from everstep.core.decision import Rejected
from everstep.core.placement import Layout
from everstep.eventstore.codec import EventCodec, Upcaster
from everstep.service.handler import Aggregate, Handled
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import checkpoints_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.common_pb2 import Layout as WireLayout

CHECKPOINT_EVENTS: Final[EventCodec[events.CheckpointEvent]] = EventCodec(
    {
        "shards_stored.v2": events.ShardsStored,
        "shards_refused.v1": events.ShardsRefused,
        "checkpoint_completed.v1": events.CheckpointCompleted,
        "checkpoint_deleted.v1": events.CheckpointDeleted,
        "checkpoint_purged.v1": events.CheckpointPurged,
    },
    upcasters={"shards_stored.v1": Upcaster(to="shards_stored.v2", rewrite=upcasting.of_hosts)},
)
HISTORY_EVENTS: Final[EventCodec[events.HistoryEvent]] = EventCodec(
    {
        "job_noted.v1": events.JobNoted,
        "generation_noted.v1": events.GenerationNoted,
        "source_distrusted.v1": events.SourceDistrusted,
        "restore_laid_out.v2": events.RestoreLaidOut,
        "restore_planned.v1": events.RestorePlanned,
        "checkpoints_suspected.v1": events.CheckpointsSuspected,
        "suspicion_ended.v1": events.SuspicionEnded,
        "trust_decided.v1": events.TrustDecided,
        "checkpoint_pinned.v1": events.CheckpointPinned,
        "checkpoint_unpinned.v1": events.CheckpointUnpinned,
        "removals_decided.v1": events.RemovalsDecided,
        "checkpoint_checked.v1": events.CheckpointChecked,
    },
    upcasters={
        "restore_laid_out.v1": Upcaster(to="restore_laid_out.v2", rewrite=upcasting.by_holder),
    },
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
    message: checkpoints_pb2.PlanRestore,
    checkpoints: tuple[commands.CompleteFacts, ...],
    unfinished: tuple[commands.Known, ...] = (),
) -> commands.PlanRestore:
    """Read a request for a plan and add the job's checkpoints."""
    return commands.PlanRestore(
        job_id=message.job_id,
        generation=message.generation,
        world_size=message.world_size,
        holdings=tuple(
            commands.HostHoldings(
                host_id=host.host_id,
                address=host.address,
                peer_port=host.peer_port,
                held=tuple(
                    commands.HeldSnapshots(
                        step=held.step,
                        generation=held.generation,
                        own=held.own,
                        ranks=tuple(sorted(held.ranks)),
                    )
                    for held in host.held
                ),
            )
            for host in message.holdings
        ),
        from_step=message.from_step,
        at_ms=message.at_ms,
        checkpoints=checkpoints,
        unfinished=unfinished,
        before_step=message.before_step,
        layout=from_wire(message.layout, Layout) if message.HasField("layout") else None,
    )


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
        sources=sources_of(plan),
        passed_over=done.state.passed_over,
    )


def sources_of(plan: events.RestoreLaidOut) -> checkpoints_pb2.RestoreSources:
    """Write the plan's sources; none at all for a fresh start."""
    return checkpoints_pb2.RestoreSources(
        holders=[
            checkpoints_pb2.Holder(
                host_id=holder.host_id,
                address=holder.address,
                peer_port=holder.peer_port,
                generation=holder.generation,
                own=holder.own,
                replicas=holder.replicas,
            )
            for holder in plan.holders
        ],
        shards=[
            checkpoints_pb2.Shard(
                rank=shard.rank, uri=shard.uri, bytes=shard.bytes, checksum=shard.checksum
            )
            for shard in plan.shards
        ],
        shards_generation=plan.shards_generation,
        old_layout=None if plan.old_layout is None else to_wire(plan.old_layout, WireLayout()),
        lost=plan.lost,
    )
