"""Real ranks show who holds a flipped bit, and keep the sound step until somebody has decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.train.harness import JOB

from everstep.agent.checksums import checksums_of
from everstep.core.placement import Layout
from everstep.faults.kinds import Part, as_environment, at
from everstep.monitor.detectors.corruption import blame, differences, tensors_of
from everstep.monitor.detectors.corruption_course import CorruptionCourse, Found
from everstep.wire.v1.agents_pb2 import Fingerprint, TellChecksums

pytestmark = pytest.mark.torch

NOTE = {"on_corruption": "note"}  # ranks go on, and more can be seen


@dataclass(frozen=True)
class Told:
    """What a rank tells of a step."""

    rank: int
    step: int
    verified_step: int
    compared_step: int = 0
    fingerprints: tuple[Fingerprint, ...] = field(default=())


class Watched:
    """A world that is watched as by a monitor; each rank counts as a host."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.layout = Layout(**world.spec["layout"])
        self.hosts = [f"h{rank}" for rank in range(world.world_size)]
        self.found: list[Found] = []
        self._seen = [0] * world.world_size
        self._course = CorruptionCourse()
        self._course.begin(0, self.layout, self.hosts)
        self._course.resumed(0, 0)

    def until_step(self, step: int) -> None:
        """Serve the ranks until all have told of a step."""

        def over() -> bool:
            self._look()
            ended = any(rank.status is not None for rank in self.world.ranks)
            assert not ended, self.world.logs()
            return all(rank.step >= step for rank in self.world.ranks)

        self.world.until(over)

    def _look(self) -> None:
        for rank in self.world.ranks:
            new = rank.steps[self._seen[rank.rank] :]
            self._seen[rank.rank] += len(new)
            said = self._course.told(0, [told_of(rank.rank, one) for one in new])
            assert all(isinstance(one, Found) for one in said), said
            self.found += said

    def named(self, last: int) -> dict[int, tuple[tuple[int, ...], bool]]:
        """Return who was blamed by step, and whether for certain; ranks may be further by now."""
        found = [one for one in self.found if one.step <= last]
        return {one.step: (one.blame.ranks, one.blame.certain) for one in found}

    def held(self, found: Found) -> dict[int, dict[tuple[int, str], str]]:
        """Return what lies in the ranks' memory of what is held alike, as their agents tell it."""
        command = TellChecksums(job_id=JOB, step=found.step, ranks=found.holders)
        return {
            one.rank: {(tensor.over, tensor.name): tensor.checksum for tensor in one.tensors}
            for one in checksums_of(self.world.memory_dir, command)
        }

    def tensors(self, found: Found) -> tuple[str, ...]:
        """Return what differs; tensor by tensor it is the same ranks."""
        seen = differences(self.held(found), self.layout)
        assert blame(seen, self.hosts).ranks == found.blame.ranks
        return tensors_of(seen)


def told_of(rank: int, frame: dict[str, Any]) -> Told:
    """Return a rank's word as a monitor gets it."""
    shown = tuple(Fingerprint(over=over, value=value) for over, value in frame["fingerprints"])
    return Told(
        rank=rank,
        step=frame["step"],
        verified_step=frame["verified_step"],
        compared_step=frame["compared_step"],
        fingerprints=shown,
    )


def spec_of(make_spec, layout: dict[str, int], **more: Any) -> dict[str, Any]:
    """Return a spec whose batch any of the layouts can split."""
    spec = make_spec(layout, steps=60, args={"dropout": 0.1}, **more)
    return {**spec, "data": {**spec["data"], "global_batch": 12}}


def test_parameter_and_moment_are_each_named_at_their_rank(make_world, make_spec):
    """Of three replicas two agree, in each tensor-parallel column for itself."""
    layout = {"dp_replicate": 3, "tp": 2}
    flips = (
        at(rank=2, step=3).flip(Part.PARAMETER, tensor="layers.0.ffn.w2.weight"),
        at(rank=5, step=5).flip(Part.MOMENT, tensor="layers.1.attention.wq.weight.exp_avg"),
    )
    world = make_world("flips", spec_of(make_spec, layout, corruption=NOTE))
    world.start(env=as_environment(*flips))
    watched = Watched(world)
    watched.until_step(7)
    named = watched.named(7)
    assert named == {4: ((2,), True), 5: ((2,), True), 6: ((2, 5), True), 7: ((2, 5), True)}
    assert {one.sound_step for one in watched.found} == {3}
    last = set(watched.tensors(watched.found[-1]))
    assert "model.layers.0.ffn.w2.weight" in last
    assert "optimizer.state.layers.1.attention.wq.weight.exp_avg" in last


def test_sound_step_is_kept_while_ranks_do_not_agree(make_world, make_spec):
    """A norm is held by tensor-parallel ranks too: with two replicas they break the tie."""
    world = make_world("held", spec_of(make_spec, {"dp_replicate": 2, "tp": 2}))
    norm = "layers.1.attention_norm.weight"
    world.start(env=as_environment(at(rank=1, step=4).flip(Part.PARAMETER, tensor=norm)))
    watched = Watched(world)
    watched.until_step(9)
    (found,) = watched.found
    assert (found.step, found.sound_step) == (5, 4)
    assert (found.blame.ranks, found.blame.certain) == ((1,), True)
    assert watched.tensors(found) == (f"model.{norm}",)
    assert [world.held_steps(rank) for rank in range(4)] == [{4, 5}] * 4
    assert [step["snapshot_slot"] for step in world.ranks[0].steps[5:9]] == [-1] * 4
    world.kill()
    world.until_ended()
    world.start(1, step=found.sound_step)
    world.until_step(6)
    # What was restored is compared by its header, before anything is trained from it.
    assert [rank.steps[0]["verified_step"] for rank in world.ranks] == [4] * 4


def test_rank_is_still_named_when_its_wrong_weight_was_trained_with(make_world, make_spec):
    """The step after: what it computed wrong has reached all replicas and columns alike."""
    world = make_world("later", spec_of(make_spec, {"dp_replicate": 2, "tp": 2}, corruption=NOTE))
    norm = "layers.1.ffn_norm.weight"
    world.start(env=as_environment(at(rank=0, step=3).flip(Part.PARAMETER, tensor=norm, bit=27)))
    watched = Watched(world)
    watched.until_step(6)
    named = watched.named(6)
    assert named == {4: ((0,), True), 5: ((0,), True), 6: ((0,), True)}


def test_ranks_stay_when_their_last_step_is_not_equal(make_world, make_spec):
    """A run that is over cannot go back: they wait to be ended by who has been told."""
    spec = {**spec_of(make_spec, {"dp_replicate": 2}), "steps": 3}
    world = make_world("last", spec)
    world.start(env=as_environment(at(rank=1, step=2).flip(Part.PARAMETER)))
    watched = Watched(world)
    watched.until_step(3)
    world.until(lambda: all("in linger" in text for text in world.stacks()))
    assert [one.step for one in watched.found] == [3]
    assert all(rank.words is None for rank in world.ranks)
