"""What is looked at while an object store is in trouble sees what it is there to see."""

from __future__ import annotations

import pytest

from everstep.checkpoint_registry import sweep
from everstep.checkpoint_registry.catalog import MemoryCatalog
from everstep.checkpoint_registry.commands import CompleteFacts
from everstep.checkpoint_registry.state import Phase
from everstep.checkpoint_registry.sweep import Orphans, Sweep, Why
from everstep.sim import store_stories
from everstep.sim.playing import play


def fails(name, said):
    """Play a story that does not end well, for this reason."""
    with pytest.raises(AssertionError, match=said):
        play(name)


def test_without_the_sweep_halves_of_checkpoints_stay(monkeypatch):
    """Of the generation that was ended, and of the last one."""

    async def never(_):
        return None

    monkeypatch.setattr(Sweep, "look", never)
    fails("host_lost_while_the_object_store_is_slow", "nobody has swept up")


def test_sweep_that_takes_what_is_complete_is_found(monkeypatch):
    """It must not depend on when it looks."""
    judge = sweep.judge

    def careless(folder, content, history, checkpoints):
        if checkpoints[folder].phase is Phase.COMPLETE:
            return Orphans(folder=folder, why=Why.STORED, content=content)
        return judge(folder, content, history, checkpoints)

    monkeypatch.setattr(sweep, "judge", careless)
    fails("object_store_slows_down", "of complete checkpoints there is not")


def test_plan_from_what_was_not_read_back_is_found(monkeypatch):
    """All have reported, and nobody has looked."""
    story = store_stories.both_copies_lost_while_the_object_store_is_slow

    async def hasty(self, job_id):
        return tuple(
            CompleteFacts(step=one.step, generation=one.generation, shards=one.sorted_shards)
            for one in self.every()
            if one.job_id == job_id and one.phase in (Phase.COMPLETE, Phase.STORED)
        )

    monkeypatch.setattr(MemoryCatalog, "complete", hasty)
    fails(story.__name__, r"^\{30\}$")  # the story's own word; the plans' invariant comes after it
