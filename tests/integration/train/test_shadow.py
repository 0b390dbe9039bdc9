"""Ranks re-run each other's work on the way: nothing of the run changes, and bits agree."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.memory.reader import SlotReader

pytestmark = pytest.mark.torch

STEPS = 6
LAYOUTS = {
    "pp2 shard2": {"pp": 2, "dp_shard": 2},
    "replicate3 tp2": {"dp_replicate": 3, "tp": 2},
    "replicate2 shard2": {"dp_replicate": 2, "dp_shard": 2},
}


def final_state(world) -> list[dict[str, str]]:
    """Return every rank's tensors and objects of the last step, by checksum."""
    found = []
    for path in world.durable():
        with SlotReader(path) as reader:
            header = reader.verify()
            found.append({one.name: one.checksum for one in header.entries})
    return found


def unequal(one, other) -> set[tuple[int, str]]:
    """Return which tensors of which ranks have other bits in the end."""
    pairs = zip(final_state(one), final_state(other), strict=True)
    return {
        (rank, name)
        for rank, (mine, theirs) in enumerate(pairs)
        for name in mine.keys() | theirs.keys()
        if mine.get(name) != theirs.get(name)
    }


def reruns(world) -> list[dict[int, dict[str, Any]]]:
    """Return, for each rank, what it re-ran by step."""
    return [
        {
            told["step"]: told["checked"]["rerun"]
            for told in rank.steps
            if told["checked"] and told["checked"]["rerun"]
        }
        for rank in world.ranks
    ]


def run(world) -> Any:
    """Train to the end."""
    world.start()
    world.finish()
    return world


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_shadow_steps_change_nothing_and_agree(make_world, make_spec, layout):
    """With dropout, whatever the layout: the same losses and final bits, and equal fingerprints."""
    size = {"global_batch": 24, "micro_batch": 2} if 3 in layout.values() else {}
    args = {"dropout": 0.2}
    plain = make_spec(layout, steps=STEPS, args=args)
    plain["data"] |= size
    shadowed = {**plain, "corruption": {"recompute_every_steps": 2, "gradient_norms": True}}
    without, with_shadow = run(make_world("plain", plain)), run(make_world("shadow", shadowed))
    told = reruns(with_shadow)
    assert all(set(one) == {2, 4, 6} for one in told)
    for step in (2, 4, 6):
        by_rank = [one[step] for one in told]
        assert sorted(one["of"] for one in by_rank) == list(range(len(by_rank)))
        for rank, one in enumerate(by_rank):
            assert one["of"] != rank
            assert one["other"] == by_rank[one["of"]]["own"]
    curves = [[one["loss"] for one in world.ranks[0].steps] for world in (without, with_shadow)]
    assert curves[0] == curves[1]
    assert unequal(without, with_shadow) == set()


def test_recompute_that_one_rank_is_asked_for_is_made_by_all_at_once(make_world, make_spec):
    """At a step that they agree on; norms of own gradients are told with every step.

    Replicas have other samples, so other norms; what is reduced has one.
    """
    spec = make_spec({"dp_replicate": 2}, steps=40, corruption={"gradient_norms": True})
    world = make_world("asked", spec)
    world.start()
    world.until_step(3)
    world.ask("recompute", [1])
    world.finish()
    mine, theirs = reruns(world)
    assert len(mine) == 1
    assert mine.keys() == theirs.keys()
    norms = [{one["step"]: one["checked"]["local_norm"] for one in r.steps} for r in world.ranks]
    assert norms[0].keys() == norms[1].keys() == set(range(1, 41))
    for step, reduced in ((one["step"], one["grad_norm"]) for one in world.ranks[0].steps):
        assert norms[0][step] != norms[1][step]
        assert 0 < reduced < max(norms[0][step], norms[1][step])


EXPERTS = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.outside = nn.Linear(8, 1)

    def forward(self, x):
        return self.outside(self.norm(self.inside(x)))


def main(run):
    torch.manual_seed(0)
    net = Net()
    if run.args["sharded"]:
        fully_shard(net.inside, mesh=run.mesh["dp_shard"])
    bias = nn.Parameter(torch.zeros(1))  # of no module
    optimizer = torch.optim.SGD([*net.parameters(), bias], lr=0.05)
    run.track(net=net, bias=bias, optimizer=optimizer)
    data = torch.randn(64, 8).unbind()
    seen = []
    for batch in run.batches([(one, one.sum()) for one in data]):
        noise = torch.randn(batch.inputs.shape)
        found = net(batch.inputs + 0.1 * noise).squeeze(1) + bias
        loss = (found - batch.targets).square().mean()
        loss.backward()
        for parameter in (*net.parameters(), bias):
            if not hasattr(parameter.grad, "placements"):
                torch.distributed.all_reduce(parameter.grad)
        if not batch.shadow:
            seen.append(batch.samples)
        run.step(optimizer, loss=loss)
    assert len(seen) == run.spec.steps
"""


@pytest.mark.parametrize("sharded", [False, True])
def test_loop_of_ones_own_with_buffers_and_its_own_reduction_is_unchanged(
    make_world, make_spec, sharded
):
    """Parameters that FSDP does not have, statistics that forward changes, noise of the loop."""
    spec = make_spec({"dp_shard": 2}, steps=STEPS, args={}, entry="own:main")
    spec["args"] = {"sharded": sharded}
    spec["data"] |= {"path": "", "global_batch": 8, "micro_batch": 2}
    worlds = []
    for name, every in (("without", 0), ("with", 2)):
        spec["corruption"] = {"recompute_every_steps": every}
        world = make_world(name, {**spec})
        (world.directory / "own.py").write_text(EXPERTS)
        worlds.append(run(world))
    mine, theirs = reruns(worlds[1])
    assert mine.keys() == {2, 4, 6}
    for step, found in mine.items():
        assert found["other"] == theirs[step]["own"]
        assert found["own"] == theirs[step]["other"]
        assert found["own"]["gradient"] != found["other"]["gradient"]
    assert unequal(*worlds) == set()
