"""Decides what becomes of a command to a checkpoint or to a job's history."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never, cast

from everstep.checkpoint_registry.commands import (
    DELETED_OVER,
    CheckpointCommand,
    CompleteCheckpoint,
    DeleteCheckpoint,
    DistrustSource,
    HistoryCommand,
    NoteGeneration,
    NoteJob,
    NotePurge,
    PlanRestore,
    RefuseShard,
    ReportShards,
    TakeReports,
)
from everstep.checkpoint_registry.events import (
    CheckpointCompleted,
    CheckpointDeleted,
    CheckpointEvent,
    CheckpointPurged,
    GenerationNoted,
    HistoryEvent,
    JobNoted,
    RestorePlanned,
    Shard,
    ShardsRefused,
    ShardsStored,
    SourceDistrusted,
)
from everstep.checkpoint_registry.judging import decide_judging
from everstep.checkpoint_registry.object_keys import manifest_key, prefix_of
from everstep.checkpoint_registry.policy import FRESH, plan_restore
from everstep.checkpoint_registry.state import Checkpoint, History, Phase
from everstep.core.decision import Accepted, Rejected
from everstep.core.ids import is_valid_id

_GONE = frozenset({Phase.DELETED, Phase.PURGED})


def decide_checkpoint(
    command: CheckpointCommand, checkpoint: Checkpoint
) -> Accepted[CheckpointEvent] | Rejected:
    """Decide on one checkpoint as it is."""
    match command:
        case ReportShards():
            refused = _why_not_stored(command, checkpoint, checkpoint.shards)
            return refused or _take((command,), checkpoint)
        case TakeReports():
            return _take(command.reports, checkpoint)
        case RefuseShard():
            return _refuse(command, checkpoint)
        case CompleteCheckpoint():
            return _complete(command, checkpoint)
        case DeleteCheckpoint():
            return _delete(command, checkpoint)
        case NotePurge():
            return _purged(command, checkpoint)
        case _:
            assert_never(command)


def decide_history(command: HistoryCommand, history: History) -> Accepted[HistoryEvent] | Rejected:
    """Decide on a job's history as it is."""
    match command:
        case PlanRestore():
            return _plan(command, history)
        case NoteJob():
            return _note(command, history)
        case DistrustSource():
            return _distrust(command, history)
        case NoteGeneration():
            if command.generation <= history.newest_generation:
                return Accepted()
            begun = GenerationNoted(
                job_id=command.job_id,
                generation=command.generation,
                at_ms=command.at_ms,
                from_step=command.from_step,
            )
            return Accepted((begun,))
        case _:
            return decide_judging(command, history)


def _note(command: NoteJob, history: History) -> Accepted[HistoryEvent]:
    known = (history.keep_last, history.keep_days, history.unseen_steps, history.layout)
    if known == (command.keep_last, command.keep_days, command.unseen_steps, command.layout):
        return Accepted()
    noted = JobNoted(
        job_id=command.job_id,
        keep_last=command.keep_last,
        layout=command.layout,
        at_ms=command.at_ms,
        keep_days=command.keep_days,
        unseen_steps=command.unseen_steps,
    )
    return Accepted((noted,))


def _distrust(command: DistrustSource, history: History) -> Accepted[HistoryEvent]:
    distrusted = SourceDistrusted(
        job_id=command.job_id,
        generation=command.generation,
        rank=command.rank,
        step=command.step,
        host_id=command.host_id,
        uri=command.uri,
        detail=command.detail,
        at_ms=command.at_ms,
    )
    same = (distrusted.generation, distrusted.rank, distrusted.host_id, distrusted.uri)
    known = {(d.generation, d.rank, d.host_id, d.uri) for d in history.distrusted}
    return Accepted() if same in known else Accepted((distrusted,))


def _take(reports: Sequence[ReportShards], checkpoint: Checkpoint) -> Accepted[CheckpointEvent]:
    """Take the reports one after the other, each judged on what the ones before it said."""
    fresh: dict[int, Shard] = {}
    seen = ChainMap(fresh, cast("dict[int, Shard]", checkpoint.shards))  # only ever read
    taken: list[ReportShards] = []
    for report in reports:
        if _why_not_stored(report, checkpoint, seen) is None:
            new = {shard.rank: shard for shard in report.shards if shard.rank not in seen}
            if new:
                fresh |= new
                taken.append(report)
                checkpoint = replace(checkpoint, world_size=report.world_size)
    if not taken:
        return Accepted()
    stored = ShardsStored(
        job_id=taken[0].job_id,
        step=taken[0].step,
        generation=taken[0].generation,
        hosts=tuple(sorted({report.host_id for report in taken})),
        world_size=checkpoint.world_size,
        shards=tuple(shard for _, shard in sorted(fresh.items())),
        data_state=next((report.data_state for report in taken if report.data_state), ""),
        at_ms=max(report.at_ms for report in taken),
    )
    return Accepted((stored,))


def _why_not_stored(
    command: ReportShards, checkpoint: Checkpoint, seen: Mapping[int, Shard]
) -> Rejected | None:
    """Say why a report is refused; ``seen`` are the shards reported so far."""
    what = f"job {command.job_id} step {command.step} generation {command.generation}"
    if not is_valid_id(command.job_id):
        return Rejected("bad_job_id", f"{command.job_id!r} is no id: letters, digits, _ and -")
    if command.step < 0 or command.generation < 1 or command.world_size < 1:
        return Rejected(
            "bad_report",
            f"{what} of {command.world_size} ranks: expected a step from 0, a generation and a "
            "world size from 1",
        )
    late = command.generation < command.newest_generation
    if late and command.step > command.kept_to_step:
        return Rejected(
            "stale_generation",
            f"{what}: the job is at generation {command.newest_generation}, which has not gone on "
            "from this step; the shards are not taken",
        )
    if checkpoint.deleted:
        return Rejected("deleted", f"{what} was deleted ({checkpoint.deleted})")
    if checkpoint.world_size not in (0, command.world_size):
        return Rejected(
            "world_size_changed",
            f"{what}: {command.world_size} ranks, other hosts said {checkpoint.world_size}",
        )
    return _why_not_shards(command, seen, what)


def _why_not_shards(command: ReportShards, seen: Mapping[int, Shard], what: str) -> Rejected | None:
    prefix = prefix_of(command.job_id, command.step, command.generation)
    manifest = manifest_key(command.job_id, command.step, command.generation)
    told: dict[int, Shard] = {}
    for shard in command.shards:
        if not 0 <= shard.rank < command.world_size:
            return Rejected("bad_rank", f"{what}: rank {shard.rank} of {command.world_size} ranks")
        if not shard.uri.startswith(prefix) or shard.uri == manifest:
            return Rejected(
                "bad_key", f"{what}: shard of rank {shard.rank} is {shard.uri}, not in {prefix}"
            )
        known = told.setdefault(shard.rank, seen.get(shard.rank, shard))
        if known != shard:
            return Rejected(
                "conflicting_shard",
                f"{what}: rank {shard.rank} is reported as {_said(shard)}, before as "
                f"{_said(known)}",
            )
    return None


def _said(shard: Shard) -> str:
    return f"{shard.uri} ({shard.bytes} bytes, {shard.checksum})"


def _refuse(command: RefuseShard, checkpoint: Checkpoint) -> Accepted[CheckpointEvent] | Rejected:
    reported = any(
        shard.uri == command.uri and shard.checksum == command.checksum
        for shard in checkpoint.shards.values()
    )
    if not reported or checkpoint.phase not in (Phase.COLLECTING, Phase.STORED):
        return Accepted()
    refused = ShardsRefused(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        uri=command.uri,
        why=command.why,
        at_ms=command.at_ms,
    )
    return Accepted((refused,))


def _complete(
    command: CompleteCheckpoint, checkpoint: Checkpoint
) -> Accepted[CheckpointEvent] | Rejected:
    what = f"job {command.job_id} step {command.step} generation {command.generation}"
    if checkpoint.phase in _GONE:
        return Rejected("deleted", f"{what} was deleted ({checkpoint.deleted})")
    if checkpoint.phase is Phase.COMPLETE:
        return Accepted()
    if checkpoint.phase is Phase.COLLECTING or command.shards != checkpoint.sorted_shards:
        return Rejected("shards_changed", f"{what}: shards were refused or reported meanwhile")
    completed = CheckpointCompleted(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        manifest_uri=command.manifest_uri,
        bytes=sum(shard.bytes for shard in command.shards),
        at_ms=command.at_ms,
    )
    return Accepted((completed,))


def _delete(
    command: DeleteCheckpoint, checkpoint: Checkpoint
) -> Accepted[CheckpointEvent] | Rejected:
    if checkpoint.phase in _GONE or not checkpoint.job_id:
        return Accepted()
    if command.why == DELETED_OVER and checkpoint.phase is not Phase.COLLECTING:
        # Whoever sweeps has looked at it earlier; its last report came meanwhile.
        what = f"job {command.job_id} step {command.step} generation {command.generation}"
        return Rejected("not_over", f"{what} is {checkpoint.phase}")
    deleted = CheckpointDeleted(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        why=command.why,
        at_ms=command.at_ms,
    )
    return Accepted((deleted,))


def _purged(command: NotePurge, checkpoint: Checkpoint) -> Accepted[CheckpointEvent] | Rejected:
    if checkpoint.phase is Phase.PURGED:
        return Accepted()
    if checkpoint.phase is not Phase.DELETED:
        return Rejected(
            "not_deleted", f"job {command.job_id} step {command.step} is {checkpoint.phase}"
        )
    purged = CheckpointPurged(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        at_ms=command.at_ms,
    )
    return Accepted((purged,))


def _plan(command: PlanRestore, history: History) -> Accepted[HistoryEvent] | Rejected:
    if not is_valid_id(command.job_id):
        return Rejected("bad_job_id", f"{command.job_id!r} is no id: letters, digits, _ and -")
    if command.generation < 1 or command.world_size < 1 or command.from_step < FRESH:
        return Rejected(
            "bad_request",
            f"generation {command.generation}, {command.world_size} ranks, from step "
            f"{command.from_step}: expected 1 or more, 1 or more, -1 or more",
        )
    if command.generation < history.newest_generation:
        return Rejected(
            "stale_generation",
            f"job {command.job_id} is at generation {history.newest_generation}; a plan for "
            f"{command.generation} was asked for",
        )
    if history.plan is not None and history.plan.generation == command.generation:
        return Accepted()
    plan = plan_restore(command, history)
    if isinstance(plan, Rejected):
        return plan
    own, peer, stored = plan.counts
    planned = RestorePlanned(
        job_id=command.job_id,
        generation=command.generation,
        step=plan.laid_out.step,
        own_memory=own,
        peer_memory=peer,
        object_store=stored,
        passed_over=plan.passed_over,
        at_ms=command.at_ms,
    )
    return Accepted((plan.laid_out, planned))
