"""What the registry's process managers ask about checkpoints, and the answers from memory.

The other answers are PostgreSQL's (``projections``); the memory ones are for tests and for the
simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from everstep.checkpoint_registry.codec import CHECKPOINT_EVENTS
from everstep.checkpoint_registry.commands import CompleteFacts, Known
from everstep.checkpoint_registry.state import Checkpoint, Phase, evolve_checkpoint
from everstep.core.ports import StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CheckpointId:
    """Names one checkpoint."""

    job_id: str
    step: int
    generation: int


class Catalog(Protocol):
    """Finds checkpoints across streams; may lag behind a stream, never ahead of it."""

    async def unfinished(self) -> list[CheckpointId]:
        """Return those to be read back and completed, or deleted and still to be purged."""
        ...

    async def known(self, job_id: str) -> list[Known]:
        """Return the job's checkpoints that are not deleted."""
        ...

    async def complete(self, job_id: str) -> tuple[CompleteFacts, ...]:
        """Return the job's complete checkpoints with all shards."""
        ...

    async def job_ids(self) -> list[str]:
        """Return the jobs that have a checkpoint which is not deleted."""
        ...


class MemoryCatalog:
    """Implements ``Catalog``, and ``core.ports.Projection`` to be kept up to date."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, Checkpoint] = {}

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        """Fold the event into its checkpoint."""
        del transaction  # the memory store's: nothing to write into
        if CHECKPOINT_EVENTS.knows(event.type):
            before = self._checkpoints.get(event.stream, Checkpoint())
            decoded = CHECKPOINT_EVENTS.decode(event.type, event.data)
            self._checkpoints[event.stream] = evolve_checkpoint(before, decoded)

    async def unfinished(self) -> list[CheckpointId]:
        """Return those to be completed or purged, sorted."""
        return sorted(
            CheckpointId(job_id=c.job_id, step=c.step, generation=c.generation)
            for c in self._checkpoints.values()
            if c.phase in (Phase.STORED, Phase.DELETED)
        )

    async def known(self, job_id: str) -> list[Known]:
        """Return the job's checkpoints that are not deleted."""
        return [
            Known(
                step=c.step,
                generation=c.generation,
                complete=c.phase is Phase.COMPLETE,
                completed_ms=c.completed_ms,
                stored=len(c.shards),
                world_size=c.world_size,
            )
            for c in self._alive()
            if c.job_id == job_id
        ]

    async def complete(self, job_id: str) -> tuple[CompleteFacts, ...]:
        """Return the job's complete checkpoints."""
        return tuple(
            CompleteFacts(step=c.step, generation=c.generation, shards=c.sorted_shards)
            for c in self._alive()
            if c.job_id == job_id and c.phase is Phase.COMPLETE
        )

    async def job_ids(self) -> list[str]:
        """Return the jobs that have a checkpoint which is not deleted."""
        return sorted({c.job_id for c in self._alive()})

    def every(self) -> list[Checkpoint]:
        """Return all that ever were, for whoever checks the registry from outside."""
        return list(self._checkpoints.values())

    def _alive(self) -> list[Checkpoint]:
        return [c for c in self._checkpoints.values() if not c.deleted]
