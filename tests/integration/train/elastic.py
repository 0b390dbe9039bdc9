"""Worlds that go on from another one's snapshots, under another layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.train.harness import World

from everstep.core.placement import Layout
from everstep.core.resharding import sources_needed
from everstep.memory import layout


class ElasticWorld(World):
    """A world that may begin where ranks of another layout have ended."""

    def __init__(self, directory: Path, memory_dir: Path, spec: dict[str, Any]) -> None:
        super().__init__(directory, memory_dir, spec)
        self.lost: list[int] = []  # old ranks of which no snapshot is left
        self.plan: Callable[[int, int, World], dict[str, Any]] = self.resharded

    def go_on(self, generation: int, old: World, step: int) -> None:
        """Fork all ranks; what they are answered when they ask is put together from old slots."""
        self.start(generation)
        self._answers = {rank: self.plan(rank, step, old) for rank in range(self.world_size)}

    def resharded(self, rank: int, step: int, old: World) -> dict[str, Any]:
        """Say whose snapshots a rank is to be put together from: those it needs and no more."""
        layouts = [Layout(**world.spec["layout"]) for world in (old, self)]
        slots = []
        for one in sources_needed(*layouts, rank, lost=self.lost):
            path = layout.slot_path(old.rank_dir(one), old.slot_of(one, step))
            slots.append({"rank": one, "path": str(path)})
        return {
            "kind": "slots_ready",
            "step": step,
            "old_layout": old.spec["layout"],
            "new_layout": self.spec["layout"],
            "slots": slots,
            "lost": self.lost,
            "source_kind": "peer_memory",
            "problems": [],
        }
