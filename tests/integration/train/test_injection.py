"""Real ranks, split and reduced as in a job, do exactly the wrong that they are told."""

from __future__ import annotations

import json
import signal

import pytest
from tests.integration.train.test_resume import assert_equal_states, losses, undisturbed

from everstep.memory.layout import slot_path
from everstep.memory.reader import SlotReader
from everstep.train.faults import MARKS_VARIABLE, Part, as_environment, at

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

LAYOUT = {"dp_replicate": 2, "tp": 2}  # ranks 0, 1 and their replicas 2, 3
STEPS = 6
VICTIM = 3
TWIN = 1
KEPT = 4  # the one step of which there are snapshots, of a run that ends before the next


def parameters(world, rank: int, step: int) -> dict[str, bytes]:
    """A rank's parameters in its snapshot of a step."""
    reader = SlotReader(world.rank_dir(rank) / f"slot-{world.slot_of(rank, step)}")
    entries = [one for one in reader.header.entries if one.name.startswith("model.")]
    found = {one.name: bytes(reader.tensor(one)) for one in entries}
    reader.close()
    return found


def marked(directory) -> dict[str, dict]:
    """What has struck, by the part that was flipped or the kind."""
    said = [json.loads(path.read_text()) for path in directory.glob("job-1/*.json")]
    return {one["fault"].get("part", one["fault"]["type"]): one for one in said}


def test_wrong_gradient_and_activation_reach_all_replicas_and_a_wrong_parameter_none(
    make_world, make_spec, tmp_path
):
    """What is reduced is wrong alike everywhere; what is not makes a replica differ from others."""
    here = [at(rank=VICTIM, step=step) for step in range(STEPS)]
    shared = [
        here[1].flip(Part.ACTIVATION, tensor="layers.0.attention", bit=31),
        here[2].flip(Part.GRADIENT, tensor="layers.1.ffn.w1.weight", element=0, bit=30),
    ]
    # Ranks whose last step differs wait for a monitor, which there is none here.
    alone = make_spec(LAYOUT, steps=STEPS, corruption={"on_corruption": "off"})
    world, right = make_world("run", alone), make_world("right", alone)
    right.start()
    right.finish()
    own = here[STEPS - 1].flip(Part.PARAMETER, tensor="layers.0.ffn.w2.weight", bit=5)
    world.start(env={**as_environment(*shared, own), MARKS_VARIABLE: str(tmp_path)})
    world.finish()
    assert marked(tmp_path).keys() == {"activation", "gradient", "parameter"}
    told = marked(tmp_path)["gradient"]
    assert (told["rank"], told["host"]) == (VICTIM, "host-0")
    norms = [[one["grad_norm"] for one in each.ranks[0].steps] for each in (right, world)]
    assert norms[0][0] == norms[1][0]
    assert norms[0][1] != norms[1][1]
    assert norms[1][2] > 1e3 * norms[0][2]
    before = [parameters(world, rank, STEPS - 1) for rank in (TWIN, VICTIM)]
    assert before[0] == before[1]
    after = [parameters(world, rank, STEPS) for rank in (TWIN, VICTIM)]
    assert {n for n in after[0] if after[0][n] != after[1][n]} == {"model.layers.0.ffn.w2.weight"}


def test_rank_that_kills_itself_does_so_once(make_world, make_spec):
    """The next generation makes the step."""
    world = make_world("killed", make_spec({"dp_shard": 2}, steps=STEPS))
    faults = as_environment(at(rank=1, step=2).kill())
    world.start(env=faults)
    world.until(lambda: world.ranks[1].status is not None)
    assert world.ranks[1].exit_code == -signal.SIGKILL
    world.kill()
    world.until_ended()
    world.start(1, step=world.newest_common_step(), env=faults)
    world.finish()
    assert world.ranks[1].steps[-1]["step"] == STEPS


def test_flipped_bit_of_a_snapshot_is_refused_and_the_next_source_ends_bit_equal(
    make_world, make_spec, tmp_path
):
    """The run itself goes on right; only who restores from that copy finds out, by its checksum."""
    sparse = {"memory_every_steps": KEPT}
    spec = make_spec({"dp_shard": 2}, steps=STEPS + 1, args={"dropout": 0.1}, checkpoint=sparse)
    right, world = undisturbed(make_world, spec), make_world("damaged", spec)
    flip = at(rank=1, step=KEPT + 1).flip(Part.SNAPSHOT)
    struck = as_environment(flip, at(rank=1, step=KEPT + 2).kill())
    env = {**struck, MARKS_VARIABLE: str(tmp_path)}
    world.start(env=env)
    world.until(lambda: world.ranks[1].status is not None)
    world.kill()
    world.until_ended()
    assert marked(tmp_path)["snapshot"]["snapshot_step"] == KEPT
    assert losses(world).items() <= losses(right).items()
    assert world.newest_common_step() == KEPT
    slot = world.slot_of(1, KEPT)
    asked = []

    def from_a_peer(rank):
        asked.append(rank)
        copy = slot_path(right.rank_dir(rank), right.slot_of(rank, KEPT))
        slot_path(world.rank_dir(rank), slot).write_bytes(copy.read_bytes())
        told = {"step": KEPT, "slot": slot, "source_kind": "peer_memory", "problems": ["own: bad"]}
        return {"kind": "slot_ready", **told}

    world.mend = from_a_peer
    world.start(1, step=KEPT, env=env)
    world.finish()
    [damaged] = world.damaged
    assert (asked, damaged["slot"], damaged["step"]) == ([1], slot, KEPT)
    assert "checksum expected" in damaged["problem"]
    assert [one.ready["source_kind"].lower() for one in world.ranks] == [
        "own_memory",
        "peer_memory",
    ]
    assert_equal_states(right, world)
