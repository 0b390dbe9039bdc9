"""An audit's ranks make one replica's share of a step once more, from a stored checkpoint.

Real ranks: what they come to is what the job's own ranks said of the same step, bit for bit, and
what is not so shows where it began.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.integration.train.elastic import ElasticWorld
from tests.integration.train.harness import World

from everstep.core.elastic import full_layout
from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of, rank_at, sources_needed
from everstep.core.spec import parse_spec
from everstep.train.faults import Part, as_environment, at

pytestmark = pytest.mark.torch

KEPT, STEPS = 3, 8  # the step that is stored, and of how many
JOB = "job-1"
BEHIND = """
from pathlib import Path

import torch
from everstep.models import pretrain


def main(run):
    step, track, batches = run.step, run.track, run.batches
    tracked = {}

    def tracking(**things):
        tracked.update(things)
        track(**things)

    def stepping(*args, **kwargs):
        assert run.spec.steps == 8, "the job's, by which its schedules go"
        return step(*args, **kwargs)

    def looking(dataset=None):
        for batch in batches(dataset):
            yield batch
            if run.spec.audit is None and run.spec.layout.pp == 1:
                with torch.random.fork_rng():
                    tracked["model"](batch.inputs)  # with a graph, as in a step, but between two

    run.track, run.step, run.batches = tracking, stepping, looking
    pretrain.main(run)
    Path(f"behind-{run.rank}").touch()
"""


class Audit(ElasticWorld):
    """The ranks of one replica, which begin from stored snapshots of a job's."""

    def __init__(self, directory: Path, memory_dir: Path, spec: dict[str, Any]) -> None:
        super().__init__(directory, memory_dir, spec)
        self.layout = full_layout(parse_spec(spec))
        self.world_size = self.layout.world_size
        self.plan = self.stored

    def stored(self, rank: int, step: int, old: World) -> dict[str, Any]:
        """Say where the old ranks' stored snapshots lie."""
        before = Layout(**old.spec["layout"])
        replica = self.spec["audit"]["replica"]
        ranks = range(before.world_size)
        lost = [one for one in ranks if coordinate_of(before, one).replicate != replica]
        needed = sources_needed(before, self.layout, rank, lost=lost)
        return {
            "kind": "slots_ready",
            "step": step,
            "old_layout": old.spec["layout"],
            "new_layout": {**old.spec["layout"], "dp_replicate": 1},
            "slots": [{"rank": one, "path": str(stored_path(old, one))} for one in needed],
            "lost": lost,
            "source_kind": "object_store",
            "problems": [],
        }


def stored_path(world: World, rank: int) -> Path:
    """Return where the copy of a rank's durable snapshot lies."""
    return world.directory / "stored" / f"rank-{rank}"


@pytest.fixture
def audited(make_world, make_spec):
    """Return a job that ran over its first stored checkpoint, and a maker of its audits."""

    def run(layout: dict[str, int], *, env: dict[str, str] | None = None) -> World:
        args = {"dropout": 0.2}
        spec = make_spec(layout, steps=STEPS, args=args, entry="behind:main")
        spec["data"]["global_batch"] = 24  # for two and three groups
        spec["checkpoint"]["object_every_steps"] = KEPT
        spec["corruption"] = {"audit_every_checkpoints": 1, "on_corruption": "replace"}
        world = make_world("job", spec)
        (world.directory / "behind.py").write_text(BEHIND)
        world.start(env=env or {})
        world.until_step(KEPT)
        (world.directory / "stored").mkdir()
        for rank, path in enumerate(world.durable()):
            shutil.copy(path, stored_path(world, rank))
        world.finish()
        return world

    def audit(job: World, replica: int, *, env: dict[str, str] | None = None) -> Audit:
        sizes = Layout(**job.spec["layout"])
        ranks = sizes.world_size // sizes.dp_replicate
        section = {
            "job_id": JOB,
            "step": KEPT,
            "replica": replica,
            "works": ["0" * 16 + ":" + "0" * 16] * ranks,
        }
        world = make_world(f"audit-{replica}", {**job.spec, "audit": section}, Audit)
        (world.directory / "behind.py").write_text(BEHIND)
        world.go_on(1, job, KEPT)
        return world

    return run, audit


def works(world: World, step: int) -> dict[int, dict[str, int]]:
    """Return what each rank said that its own work came to at a step."""
    found = {}
    for rank in world.ranks:
        for told in rank.steps:
            if told["step"] == step and told["checked"] and told["checked"]["own"]:
                found[rank.rank] = told["checked"]["own"]
    return found


def place_in(job: World, audit: Audit, rank: int) -> int:
    """Return the job's rank whose work an audit's rank makes again."""
    at_ = coordinate_of(audit.layout, rank)
    full = Layout(**job.spec["layout"])
    replica = audit.spec["audit"]["replica"]
    there = type(at_)(pp=at_.pp, replicate=replica, shard=at_.shard, tp=at_.tp)
    return rank_at(full, there)


@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 2, "dp_replicate": 2, "tp": 2},
        {"dp_replicate": 2, "dp_shard": 2},
        {"dp_shard": 2},
        {"dp_replicate": 3},
    ],
    ids=lambda sizes: " ".join(f"{name} {size}" for name, size in sizes.items()),
)
def test_every_replica_comes_to_what_the_job_said(audited, layout):
    """Dropout and all; no other step is told of, nothing is kept, and user code ends there."""
    run, audit = audited
    job = run(layout)
    said = works(job, KEPT + 1)
    assert sorted(said) == list(range(job.world_size))
    steps = {told["step"] for rank in job.ranks for told in rank.steps if told["checked"]}
    assert steps == {KEPT + 1, 2 * KEPT + 1}
    for replica in range(job.spec["layout"]["dp_replicate"]):
        again = audit(job, replica)
        again.finish()
        found = works(again, KEPT + 1)
        expected = {rank: said[place_in(job, again, rank)] for rank in range(again.world_size)}
        assert found == expected
        assert [told["step"] for rank in again.ranks for told in rank.steps] == [
            KEPT + 1
        ] * again.world_size
        assert all(told["position"] == KEPT for rank in again.ranks for told in rank.steps)
        assert not any(again.held_steps(rank) for rank in range(again.world_size))
        assert not list(again.directory.glob("behind-*")), "what comes behind the loop was run"
    assert len(list(job.directory.glob("behind-*"))) == job.world_size


@pytest.mark.parametrize(("rank", "layer"), [(1, 0), (3, 1)])
def test_bit_that_was_wrong_in_the_job_shows_where_it_was_made(audited, rank, layer):
    """A gradient of one stage of one replica; the audits do not obey the job's faults."""
    run, audit = audited
    tensor = f"layers.{layer}.ffn.w1.weight"
    fault = at(rank=rank, step=KEPT).flip(Part.GRADIENT, tensor=tensor, bit=20)
    layout = {"pp": 2, "dp_replicate": 2}  # ranks 2 and 3 are the last stage
    job = run(layout, env=as_environment(fault))
    said = works(job, KEPT + 1)
    for replica in (0, 1):
        again = audit(job, replica, env=as_environment(fault))
        again.finish()
        found = works(again, KEPT + 1)
        differ = {
            (rank, part)
            for rank, work in found.items()
            for part in work
            if work[part] != said[place_in(job, again, rank)][part]
        }
        assert differ == ({(layer, "gradient")} if replica else set())
