"""Two aggregates: one checkpoint, and one job's history of generations and restores.

A checkpoint is its own stream, because thousands of hosts report to it and nothing else contends.
The history is small and decides what may be restored. ``evolve_*`` never refuses a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from everstep.checkpoint_registry.events import (
    CheckpointCompleted,
    CheckpointDeleted,
    CheckpointEvent,
    CheckpointPurged,
    GenerationNoted,
    HistoryEvent,
    JobNoted,
    RestoreLaidOut,
    RestorePlanned,
    Shard,
    ShardsRefused,
    ShardsStored,
    SourceDistrusted,
)
from everstep.checkpoint_registry.lineage import Lineage, Restart, lineage_of
from everstep.core.placement import Layout

# Bad copies are rare; a thousand means that a store is broken, and its checkpoints then are refused
# one after the other anyway.
DISTRUSTED_MAX: Final = 1_000
KEEP_LAST_DEFAULT: Final = 3  # as core.spec.CheckpointSpec; until the job's spec is known


class Phase(StrEnum):
    """How far a checkpoint is; only ``COMPLETE`` may be restored from."""

    COLLECTING = "collecting"
    STORED = "stored"  # every rank has reported: to be read back
    COMPLETE = "complete"
    DELETED = "deleted"  # objects may be left
    PURGED = "purged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that is known of one step's checkpoint by one generation."""

    job_id: str = ""
    step: int = -1
    generation: int = 0
    world_size: int = 0
    shards: Mapping[int, Shard] = field(default_factory=dict)
    data_state: str = ""
    stored_ms: int = 0  # when the newest shard was reported
    manifest_uri: str = ""
    completed_ms: int = 0
    deleted: str = ""  # why
    purged: bool = False

    @property
    def phase(self) -> Phase:
        """Return how far it is."""
        if self.deleted:
            return Phase.PURGED if self.purged else Phase.DELETED
        if self.manifest_uri:
            return Phase.COMPLETE
        whole = 0 < self.world_size == len(self.shards)
        return Phase.STORED if whole else Phase.COLLECTING

    @property
    def sorted_shards(self) -> tuple[Shard, ...]:
        """Return the shards by rank."""
        return tuple(shard for _, shard in sorted(self.shards.items()))


def evolve_checkpoint(checkpoint: Checkpoint, event: CheckpointEvent) -> Checkpoint:
    """Return the checkpoint after ``event``."""
    match event:
        case ShardsStored():
            return replace(
                checkpoint,
                job_id=event.job_id,
                step=event.step,
                generation=event.generation,
                world_size=event.world_size,
                shards={**checkpoint.shards, **{shard.rank: shard for shard in event.shards}},
                data_state=checkpoint.data_state or event.data_state,
                stored_ms=max(checkpoint.stored_ms, event.at_ms),
            )
        case ShardsRefused():
            good = {rank: s for rank, s in checkpoint.shards.items() if s.uri != event.uri}
            return replace(checkpoint, shards=good)
        case CheckpointCompleted():
            return replace(checkpoint, manifest_uri=event.manifest_uri, completed_ms=event.at_ms)
        case CheckpointDeleted():
            return replace(checkpoint, deleted=event.why)
        case CheckpointPurged():
            return replace(checkpoint, purged=True)
        case _:
            assert_never(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A job's generations. ``plan`` is the newest generation's."""

    keep_last: int = KEEP_LAST_DEFAULT
    layout: Layout | None = None
    newest_generation: int = 0
    lineage: Lineage = field(default_factory=Lineage)
    distrusted: tuple[SourceDistrusted, ...] = ()
    plan: RestoreLaidOut | None = None
    passed_over: tuple[str, ...] = ()


def evolve_history(history: History, event: HistoryEvent) -> History:
    """Return the history after ``event``."""
    match event:
        case JobNoted():
            return replace(history, keep_last=event.keep_last, layout=event.layout)
        case GenerationNoted():
            newest = max(history.newest_generation, event.generation)
            return replace(history, newest_generation=newest)
        case SourceDistrusted():
            known = (*history.distrusted, event)
            return replace(history, distrusted=known[-DISTRUSTED_MAX:])
        case RestoreLaidOut():
            return replace(history, plan=event)
        case RestorePlanned():
            restart = Restart(generation=event.generation, step=event.step)
            others = [r for r in history.lineage.restarts if r.generation != event.generation]
            return replace(
                history,
                newest_generation=max(history.newest_generation, event.generation),
                lineage=lineage_of([*others, restart]),
                passed_over=event.passed_over,
            )
        case _:
            assert_never(event)
