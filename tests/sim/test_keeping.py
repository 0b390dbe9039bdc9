"""The check of what the registry keeps and restores sees what it is there to see."""

from __future__ import annotations

import pytest

from everstep.checkpoint_registry import judging
from everstep.checkpoint_registry.catalog import CheckpointId
from everstep.checkpoint_registry.events import Removal
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.state import History
from everstep.checkpoint_registry.trust import Judgement, Trust
from everstep.sim.playing import play
from everstep.sim.scenarios import SCENARIOS
from everstep.sim.telling import JOB, launch
from everstep.sim.trust_stories import suspicion, told
from everstep.wire.v1 import checkpoints_pb2 as wire


async def suspected_and_restarted(stage):
    """What is in memory is suspect when a rank dies."""
    await launch(stage)
    await stage.stored(JOB, 30)
    await told(stage, suspicion(stage, from_step=25))
    stage.world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await stage.running(JOB, 2)
    await stage.finish(1)


async def pinned(stage):
    """The first checkpoint is pinned, and newer ones come."""
    await launch(stage)
    await stage.stored(JOB, 10)
    at_ms = stage.world.clock.now_ms()
    await told(stage, wire.PinCheckpoint(job_id=JOB, step=10, generation=1, by="a", at_ms=at_ms))
    await stage.finish(1)


async def left_alone(stage):
    """Nothing happens."""
    await launch(stage)
    await stage.finish(1)


def finds(monkeypatch, story, said):
    """Play a story that nothing but the check finds fault with."""
    monkeypatch.setitem(SCENARIOS, "story", story)
    with pytest.raises(AssertionError, match=said):
        play("story")


def test_plan_from_a_suspect_state_is_found(monkeypatch):
    """The registry forgets what it was told."""
    clean = Judgement(trust=Trust.CLEAN)
    monkeypatch.setattr(History, "judge", lambda *_, **__: clean)
    finds(monkeypatch, suspected_and_restarted, r"from step 3\d, which is suspect as")


def test_pinned_checkpoint_that_is_given_up_is_found(monkeypatch):
    """Retention does not look at pins."""
    monkeypatch.setattr(History, "pinned_ids", property(lambda _: frozenset()))
    finds(monkeypatch, pinned, r"gave up \[\(10, 1\)\], which are pinned")


def test_last_good_checkpoint_that_is_given_up_is_found(monkeypatch):
    """A rule that keeps none."""

    def all_of_them(known, history):
        return tuple(
            Removal(step=one.step, generation=one.generation, why="retention")
            for one in known
            if (one.step, one.generation) not in history.removed_ids
        )

    monkeypatch.setattr(judging, "removals", all_of_them)
    finds(monkeypatch, left_alone, "the last good ones")


def test_deletion_that_nobody_decided_is_found(monkeypatch):
    """A registry that deletes by its own list, as before there was a decision."""

    async def by_itself(self, job_id):
        await self.delete(CheckpointId(job_id=job_id, step=10, generation=1), "retention")
        return []

    monkeypatch.setattr(CheckpointKeeper, "thin_out", by_itself)
    finds(monkeypatch, left_alone, r"deleted \(10, 1\), which was not given up")
