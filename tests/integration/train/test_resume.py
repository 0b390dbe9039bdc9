"""Killed, restored and bit-equal: the promise of the project, on real process groups."""

import os
import signal
from functools import partial

import pytest

from everstep.core.errors import CorruptData
from everstep.memory.compare import compare
from everstep.memory.layout import SLOT_COUNT, slot_path
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.slot import read_preamble

pytestmark = pytest.mark.torch

TORN, KILLS_MAX = 3, 12  # snapshots to be killed in, and tries
LAYOUTS = {
    "pp2 dp2 tp2": ({"pp": 2, "dp_shard": 2, "tp": 2}, {"dropout": 0.1}),
    "replicate2 shard2": ({"dp_replicate": 2, "dp_shard": 2}, {"dropout": 0.2}),
    "replicate2 tp2": ({"dp_replicate": 2, "tp": 2}, {"dropout": 0.2}),
    "pp2 replicate2": ({"pp": 2, "dp_replicate": 2}, {}),
    "single": ({}, {"dropout": 0.1}),
}


def losses(world) -> dict[int, float]:
    """Return the loss of each step as rank 0 told it."""
    return {frame["step"]: frame["loss"] for frame in world.ranks[0].steps}


def any_slot_is_empty(slots) -> bool:
    """Say whether a slot is being written, or never was."""
    return None in map(read_preamble, slots)


def undisturbed(make_world, spec):
    """Run the job without any fault."""
    world = make_world("undisturbed", spec)
    world.start()
    world.finish()
    return world


def assert_equal_states(one, other) -> None:
    """Compare every tensor and object of the final states of two worlds."""
    result = compare(one.durable(), other.durable())
    assert result.equal, result.differences[:10]
    assert result.tensors_compared >= 20 * one.world_size
    assert result.checksum_a == result.checksum_b


@pytest.mark.parametrize(("layout", "args"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_killed_ranks_restored_from_memory_end_bit_equal(make_world, make_spec, layout, args):
    """Every tensor of the final state equals the undisturbed run's, and so does every loss."""
    steps = 6 if layout else 20  # one rank is fast: the kill is to come before its end
    spec = make_spec(layout, steps=steps, args=args)
    reference = undisturbed(make_world, spec)

    killed = make_world("killed", spec)
    killed.start()
    killed.until_step(3)
    killed.kill()
    killed.until_ended()
    step = killed.newest_common_step()
    assert step >= 2
    killed.start(1, step=step)
    killed.finish()

    assert_equal_states(reference, killed)
    expected = {number: loss for number, loss in losses(reference).items() if number > step}
    assert losses(killed) == expected
    assert [rank.ready["restored_step"] for rank in killed.ranks] == [step] * killed.world_size
    assert [rank.steps[0]["first"] for rank in killed.ranks] == [True] * killed.world_size


def test_killed_again_and_again_ends_bit_equal(make_world, make_spec):
    """Restoring from a restored run, and from its first step, loses nothing either."""
    spec = make_spec({"dp_shard": 2}, steps=20, args={"dropout": 0.1})  # more than three kills see
    reference = undisturbed(make_world, spec)

    killed = make_world("killed", spec)
    killed.start()
    for generation, steps in enumerate((2, 1, 2), start=1):
        killed.until_steps_told(steps)
        killed.kill()
        killed.until_ended()
        killed.start(generation, step=killed.newest_common_step())
    killed.finish()
    assert_equal_states(reference, killed)


OWN_LOOP = """
import sys

import torch

from everstep.models import pretrain

def exits(run):
    sys.exit(pretrain.main(run))

def until_ended(run):
    go_on(run, lambda: run.ended)

def for_ever(run):
    go_on(run, lambda: False)

def go_on(run, ended):
    torch.manual_seed(run.rank)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    run.track(weight=weight, optimizer=optimizer)
    while not ended():
        loss = (weight * torch.rand(3)).sum()
        loss.backward()
        run.step(optimizer, loss=loss, tokens=1)
"""


@pytest.mark.parametrize(
    "entry", ["", "user_code:until_ended", "user_code:for_ever", "user_code:exits"]
)
def test_run_restored_to_its_last_step_only_ends(make_world, make_spec, entry):
    """Killed between the last step and the end: no step more, and the same final state."""
    own = {"entry": entry} if entry else {}
    spec = make_spec({"dp_shard": 2}, steps=4, args={"dropout": 0.1}, **own)
    world = make_world("ended", spec)
    (world.directory / "user_code.py").write_text(OWN_LOOP)
    world.start()
    world.finish()
    last = [rank.steps[-1] for rank in world.ranks]
    kept = [path.rename(path.with_name("kept.shard")) for path in world.durable()]
    world.start(1, step=4)
    world.finish()
    result = compare(kept, world.durable())
    assert result.equal, result.differences
    for rank, before in zip(world.ranks, last, strict=True):
        (again,) = rank.steps
        assert (again["step"], again["durable"], again["first"]) == (4, True, True)
        for name in ("loss", "grad_norm", "tokens", "health"):
            assert again[name] == before[name]
        assert rank.words == {"kind": "finished", "exit_class": "FINISHED", "step": 4}


LOOPS = """
import torch

def until_ended(run):
    step = begun(run)
    data = torch.rand(64, 8)  # made after track(), and the same in every process
    while not run.ended:
        step(data[run.step_index % 64] + torch.rand(8))

def by_index(run):
    step = begun(run)
    data = torch.rand(64, 8)
    while run.step_index < run.spec.steps:
        step(data[run.step_index % 64] + torch.rand(8))

def by_range(run):
    step = begun(run)
    for _ in range(run.spec.steps):
        step(torch.rand(8))

def batches(run):
    step = begun(run)
    print("from step", run.step_index, run.ended)
    for batch in run.batches(torch.rand(64, 8)):
        step(batch.inputs)

def begun(run):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    run.seed_randomness()
    run.track(model=model, optimizer=optimizer)

    def step(inputs):
        loss = model(inputs).square().mean()
        loss.backward()
        run.step(optimizer, loss=loss)

    return step
"""


@pytest.mark.parametrize("loop", ["until_ended", "by_index", "by_range", "batches"])
def test_loop_of_any_form_draws_after_a_resume_what_it_would_have_drawn(
    make_world, make_spec, loop
):
    """Noise and dropout of every step, and the data made before the loop, are the same bits."""
    spec = make_spec({}, steps=400, entry=f"user_code:{loop}", data={"global_batch": 4})
    reference, killed = make_world("undisturbed", spec), make_world("killed", spec)
    for world in (reference, killed):
        (world.directory / "user_code.py").write_text(LOOPS)
    reference.start()
    reference.finish()
    killed.start()
    for generation in (1, 2):
        killed.until_steps_told(3)
        killed.kill()
        killed.until_ended()
        step = killed.newest_common_step()
        assert 0 < step < spec["steps"]
        killed.start(generation, step=step)
    killed.finish()

    expected = {number: loss for number, loss in losses(reference).items() if number > step}
    assert losses(killed) == expected
    result = compare(reference.durable(), killed.durable())
    assert result.equal, result.differences


def test_survivors_of_a_killed_rank_end_with_collective_errors(make_world, make_spec):
    """A dead peer is seen at once by those who wait for it, and named an echo."""
    world = make_world("killed", make_spec({"pp": 2, "dp_shard": 2}, steps=500))
    world.start()
    world.until_step(2)
    world.kill([3])
    world.until_ended()
    assert world.ranks[3].exit_code == -signal.SIGKILL
    assert world.ranks[3].words is None
    for rank in world.ranks[:3]:
        assert rank.words["kind"] == "failed"
        assert rank.words["exit_class"] == "COLLECTIVE", rank.words["traceback"]
        assert rank.exit_code == 42
        assert rank.words["step"] >= 2


def test_rank_killed_while_it_writes_leaves_one_whole_slot_and_no_torn_one(make_world, make_spec):
    """Killed in the middle of a snapshot: that slot holds nothing, the other one everything."""
    # Large enough that a write takes tens of milliseconds, so that the kill lands inside it.
    spec = make_spec({}, steps=5000, args={"dim": 256, "layers": 4, "ffn_dim": 768})
    world = make_world("torn", spec)
    step = None
    torn = 0
    for generation in range(KILLS_MAX):  # on a busy machine some come when a write is over
        world.start(generation, step=step)
        begun = step or 0
        world.until_step(begun + 2)
        slots = [slot_path(world.rank_dir(0), slot) for slot in range(SLOT_COUNT)]
        world.until(partial(any_slot_is_empty, slots), poll_s=0)
        world.kill()
        world.until_ended()
        whole = [path for path in slots if read_preamble(path) is not None]
        assert whole
        step = max(verify_slot(path).step for path in whole)
        assert step > begun
        torn += len(whole) < SLOT_COUNT
        if torn == TORN:
            break
    assert torn == TORN


def test_writer_killed_between_any_two_bytes_leaves_no_valid_torn_slot(make_world, make_spec):
    """The states that a kill can leave, taken from a real slot: none of the torn ones is valid."""
    world = make_world("slots", make_spec({}, steps=3))
    world.start()
    world.finish()
    path = slot_path(world.rank_dir(0), 0)
    whole = path.read_bytes()
    preamble = read_preamble(path)
    assert preamble is not None
    for cut in range(128, preamble.header_offset, preamble.payload_bytes // 40):
        torn = bytearray(whole)
        torn[12:16] = bytes(4)  # begin() comes before the first byte of the payload
        torn[64:cut] = bytes(cut - 64)
        path.write_bytes(torn)
        assert read_preamble(path) is None
        torn[12:16] = whole[12:16]  # had the flag stayed, the checksums would have told
        path.write_bytes(torn)
        with SlotReader(path) as reader, pytest.raises(CorruptData, match="checksum expected"):
            reader.verify()


def flip(path, name):
    """Flip a bit of the first tensor whose name ends so; returns its entry."""
    entry = next(one for one in verify_slot(path).entries if one.name.endswith(name) and one.bytes)
    with path.open("r+b") as file:
        file.seek(entry.offset)
        byte = file.read(1)[0]
        file.seek(entry.offset)
        file.write(bytes([byte ^ 8]))
    return entry


@pytest.mark.parametrize("name", ["weight", "exp_avg_sq", "rng.torch"])
def test_rank_whose_slot_is_damaged_is_filled_again_from_the_next_source(
    make_world, make_spec, name
):
    """What was filled by then is filled anew, and the end is the same, bit for bit."""
    spec = make_spec({}, args={"dropout": 0.1})
    reference = undisturbed(make_world, spec)
    world = make_world("damaged", spec)
    world.start()
    world.until_step(3)
    world.kill()
    world.until_ended()
    step = world.newest_common_step()
    slot = world.slot_of(0, step)
    path = slot_path(world.rank_dir(0), slot)
    sound = path.read_bytes()
    entry = flip(path, name)

    def from_a_peer(rank):
        path.write_bytes(sound)
        told = {"step": step, "slot": slot, "source_kind": "peer_memory", "problems": ["own: bad"]}
        return {"kind": "slot_ready", **told}

    world.mend = from_a_peer
    world.start(1, step=step)
    world.finish()
    [damaged] = world.damaged
    assert (damaged["slot"], damaged["step"]) == (slot, step)
    assert f"{entry.name}: checksum expected {entry.checksum}" in damaged["problem"]
    assert world.ranks[0].ready["source_kind"] == "peer_memory"
    assert world.ranks[0].ready["problems"] == ["own: bad"]
    assert_equal_states(reference, world)


def test_slots_that_stay_damaged_end_the_rank(make_world, make_spec):
    """A host whose memory cannot be relied on does not go round in circles."""
    world = make_world("hopeless", make_spec({}, steps=50))
    world.start()
    world.until_step(2)
    world.kill()
    world.until_ended()
    step = world.newest_common_step()
    slot = world.slot_of(0, step)
    flip(slot_path(world.rank_dir(0), slot), "exp_avg")
    told = {"step": step, "slot": slot, "source_kind": "peer_memory", "problems": []}
    world.mend = lambda _: {"kind": "slot_ready", **told}
    world.start(1, step=step)
    world.until_ended()
    assert world.ranks[0].words["exit_class"] == "RESTORE_FAILED"
    assert "3 slots in a row were damaged" in world.ranks[0].words["error"]
    assert len(world.damaged) == 3


def test_damaged_snapshot_is_refused_by_name_and_not_trained_on(make_world, make_spec):
    """A flipped bit in shared memory ends the rank with the tensor's name and both checksums."""
    world = make_world("damaged", make_spec({}, steps=50))
    world.start()
    world.until_step(2)
    world.kill()
    world.until_ended()
    step = world.newest_common_step()
    path = slot_path(world.rank_dir(0), world.slot_of(0, step))
    entry = flip(path, "exp_avg")
    world.start(1, step=step)
    world.until_ended()
    words = world.ranks[0].words
    assert (words["exit_class"], world.ranks[0].exit_code) == ("RESTORE_FAILED", 44)
    assert entry.name in words["error"]
    assert entry.checksum in words["error"]
    assert world.ranks[0].steps == []


def test_seek_position_moves_the_data_and_nothing_else(make_world, make_spec):
    """A start that is told to seek trains on the batch at that position."""
    world = make_world("seek", make_spec({}, steps=4))
    world.start(env={"EVERSTEP_SEEK_POSITION": "100"})
    world.finish()
    assert verify_slot(world.durable()[0]).data_state == {"position": 104, "skipped": []}
    assert os.environ.get("EVERSTEP_SEEK_POSITION") is None
