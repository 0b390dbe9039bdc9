"""Ranks that compute wrong are named by what real ranks tell of work that was done twice."""

from __future__ import annotations

import pytest

from everstep.core.placement import Layout
from everstep.monitor.detectors.recompute import Finding, Why
from everstep.monitor.detectors.recompute_course import RecomputeCourse
from everstep.train.faults import Part, as_environment, at
from everstep.wire.v1.agents_pb2 import Checked, RankStep

pytestmark = pytest.mark.torch

THREE = {"pp": 2, "dp_replicate": 3}  # ranks 0 to 2 are the first stage, 3 to 5 the last
DATA = {"global_batch": 12, "micro_batch": 2}

# A chip that is wrong from some step on, in whatever it computes: one bit of a branch's output, or
# of the gradient that comes back to it.
FLAWED = """
import itertools

import torch
from everstep.models import llama, pretrain

places = itertools.repeat(0)


def flipped(tensor):
    wrong = tensor.detach().clone()
    place = next(places)
    wrong.view(-1)[place : place + 1].view(torch.int32).bitwise_xor_(1 << 20)
    return tensor + (wrong - tensor.detach())


def main(run):
    flaw = run.args.pop("flaw")
    right = llama.FeedForward.forward
    if flaw.get("wanders"):
        globals()["places"] = itertools.count()

    def forward(self, x):
        out = right(self, x)
        if run.rank != flaw["rank"] or run.step_index < flaw["step"]:
            return out
        if flaw["part"] == "output":
            return flipped(out)
        out.register_hook(flipped)
        return out

    llama.FeedForward.forward = forward
    pretrain.main(run)
"""


def told_steps(world) -> list[RankStep]:
    """Return what ranks have told, as the monitor gets it, step by step."""
    found = []
    for rank in world.ranks:
        for told in rank.steps:
            checked = told["checked"] and Checked(**told["checked"])
            found.append(RankStep(rank=rank.rank, step=told["step"], checked=checked))
    return sorted(found, key=lambda one: (one.step, one.rank))


def findings(world, layout: dict[str, int]) -> list[Finding]:
    """Have what was told judged, as a monitor does."""
    course = RecomputeCourse(0, Layout(**layout))
    return [found for one in told_steps(world) for found in course.told(0, [one])]


def ends_in_doubt(world) -> None:
    """Serve ranks until all stay after their last step, for the judge of their work."""
    world.until_step(6)
    world.until(lambda: all("in linger" in text for text in world.stacks()))


@pytest.mark.parametrize(("part", "rank"), [("output", 1), ("gradient", 4)])
def test_rank_that_computes_wrong_is_named(make_world, make_spec, part, rank):
    """Of three replicas the one that differs from both others, at the stage where it begins.

    A wrong output of the first stage changes what the last one gets, and a wrong gradient of the
    last one what the first one gets back.
    """
    flaw = {"rank": rank, "part": part, "step": 2}
    spec = make_spec(THREE, steps=6, args={"flaw": flaw}, entry="flawed:main")
    spec["data"] |= DATA
    spec["corruption"] = {"recompute_every_steps": 2}
    world = make_world("flawed", spec)
    (world.directory / "flawed.py").write_text(FLAWED)
    world.start()
    ends_in_doubt(world)
    first, *_ = findings(world, THREE)
    assert (first.why, first.ranks, first.first_step) == (Why.NAMED, (rank,), 4)
    shadowed = {one.step for one in told_steps(world) if one.checked.HasField("rerun")}
    assert shadowed == {2, 4, 5, 6}  # a difference has the next ones shadowed, too
    kept = {one["step"] for one in world.ranks[0].steps if one["snapshot_slot"] >= 0}
    assert not kept & {4, 5}, "the state before the difference is no longer in memory"


def test_one_of_two_is_named_if_it_does_not_make_the_same_mistake_twice(make_world, make_spec):
    """After the difference both make their own work again; one does not come to what it was."""
    layout = {"dp_shard": 2}
    flaw = {"rank": 1, "part": "gradient", "step": 2, "wanders": True}
    spec = make_spec(layout, steps=6, args={"flaw": flaw}, entry="flawed:main")
    spec["corruption"] = {"recompute_every_steps": 2}
    world = make_world("flawed", spec)
    (world.directory / "flawed.py").write_text(FLAWED)
    world.start()
    ends_in_doubt(world)
    first, *_ = findings(world, layout)
    assert (first.why, first.ranks, first.first_step) == (Why.ITSELF, (1,), 4)
    assert first.last_step == 5


def test_activation_that_is_computed_again_and_differs_names_its_rank(make_world, make_spec):
    """Recomputing changes nothing; a bit that was wrong the first time is seen by its own rank."""
    layout = {"dp_shard": 2}
    curves = {}
    for recompute in (False, True):
        args = {"recompute": recompute, "dropout": 0.2}
        world = make_world(f"recompute {recompute}", make_spec(layout, steps=5, args=args))
        fault = at(rank=1, step=2).flip(Part.ACTIVATION, tensor="layers.1.ffn.w1", bit=20)
        world.start(env=as_environment(fault) if recompute else {})
        world.finish()
        curves[recompute] = [one["loss"] for one in world.ranks[0].steps]
        if recompute:
            (found,) = findings(world, layout)
            assert (found.why, found.ranks, found.first_step) == (Why.ITSELF, (1,), 3)
            assert "rank 1 in layers.1" in found.reason
    assert curves[True][:2] == curves[False][:2]
