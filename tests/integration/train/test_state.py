"""Tracked state through a slot file and back, in one process."""

import contextlib
import threading

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from everstep.core.errors import InvalidInput
from everstep.memory.control import Control
from everstep.memory.layout import control_path, durable_path, slot_path
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.slot import read_preamble
from everstep.memory.writer import Owner
from everstep.train import randomness
from everstep.train.endings import RestoreFailedError, StateMismatchError
from everstep.train.slot_source import SlotSource
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState
from everstep.train.tree import UnsupportedStateError

CPU = torch.device("cpu")
OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=0)
OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
}


class Net(nn.Module):
    """A module with a tied weight, dropout, and a buffer that forward changes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("table", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.second(self.drop(self.norm(self.first(x))))


class Training:
    """A model, its optimizer and scheduler, and their tracked state."""

    def __init__(self, directory, seed: int, make) -> None:
        self.model = Net(seed)
        self.optimizer = make(self.model.parameters())
        self.scheduler = CosineAnnealingLR(self.optimizer, T_max=10)
        self.extra = torch.zeros(2)
        self.state = TrackedState(
            CPU,
            {
                "model": self.model,
                "optimizer": self.optimizer,
                "scheduler": self.scheduler,
                "extra": self.extra,
            },
        )
        self.snapshots = Snapshots(directory, OWNER, self.state)

    def steps(self, count: int) -> None:
        for _ in range(count):
            loss = self.model(torch.randn(8, 4)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.extra += 1

    def restore(self, path) -> None:
        with SlotReader(path) as reader:
            source = SlotSource(reader)
            self.state.restore(source)
            source.finish()
            self.state.restore_randomness(source)


def finish(snapshots: Snapshots) -> None:
    """Let the thread do the rest, and wait for it."""
    snapshots.go_on(lambda: None)
    snapshots.settle()
    snapshots.wait_whole()


def take(snapshots: Snapshots, **fields) -> int:
    """Take a whole snapshot."""
    slot = snapshots.take(**fields)
    finish(snapshots)
    return slot


def state_of(path):
    """Return checksums by name of a slot's tensors and objects."""
    header = verify_slot(path)
    return {entry.name: entry.checksum for entry in header.entries} | {
        name: item.checksum for name, item in header.objects.items()
    }


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_resumed_training_equals_undisturbed_training(tmp_path, make):
    """Three steps, a restore into fresh objects, three steps: the bits of six steps."""
    randomness.seed_all(1)
    undisturbed = Training(tmp_path / "a", 1, make)
    undisturbed.steps(3)
    take(undisturbed.snapshots, step=3, data_state={})
    undisturbed.steps(3)
    take(undisturbed.snapshots, step=6, data_state={})

    randomness.seed_all(99)
    resumed = Training(tmp_path / "b", 2, make)
    resumed.restore(slot_path(tmp_path / "a", 0))
    resumed.steps(3)
    take(resumed.snapshots, step=6, data_state={})
    expected = state_of(slot_path(tmp_path / "a", 1))
    assert state_of(slot_path(tmp_path / "b", 0)) == expected
    assert "model.norm.running_mean" in expected
    assert "model.table" not in expected
    assert "model.second.weight" not in expected  # tied: kept once
    assert expected != state_of(slot_path(tmp_path / "a", 0))


def test_snapshot_becomes_whole_beside_training_and_nobody_has_to_wait(tmp_path):
    """Forward, backward and other tensors go on meanwhile; the snapshot is of the moment."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.steps(2)
    take(training.snapshots, step=2, data_state={})
    expected = state_of(slot_path(tmp_path, 0))
    slot = training.snapshots.take(step=2, data_state={})
    loss = training.model(torch.randn(8, 4)).square().mean()  # the norm's buffers, random states
    torch.autograd.backward(loss)
    training.extra += 1
    whole = threading.Event()
    assert read_preamble(slot_path(tmp_path, slot)) is None
    training.snapshots.go_on(whole.set)
    assert whole.wait(60)
    assert state_of(slot_path(tmp_path, slot)) == expected
    training.snapshots.settle()


def test_parameter_changed_before_the_copy_is_through_is_refused_by_name(tmp_path):
    """The snapshot would hold what no step has left, under checksums that fit."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.steps(1)
    slot = training.snapshots.take(step=1, data_state={})
    with torch.no_grad():
        training.model.first.weight.clamp_(-0.1, 0.1)
    training.snapshots.go_on(lambda: None)
    with pytest.raises(InvalidInput, match=r"model\.first\.weight was changed between run\.step"):
        training.snapshots.settle()
    assert read_preamble(slot_path(tmp_path, slot)) is None


def test_parameter_changed_after_the_copy_is_refused_too(tmp_path):
    """Whether the thread was quick must not decide whether a run is correct."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.steps(1)
    training.snapshots.take(step=1, data_state={})
    whole = threading.Event()
    training.snapshots.go_on(whole.set)
    assert whole.wait(60)
    with torch.no_grad():
        training.model.second.bias.zero_()
    with pytest.raises(InvalidInput, match=r"model\.second\.bias was changed"):
        training.snapshots.settle()


@pytest.mark.parametrize("overlap", [True, False])
def test_change_that_moves_no_counter_is_found_by_comparing(tmp_path, overlap):
    """``.data`` is how averaged weights are often swapped in."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.snapshots = Snapshots(tmp_path, OWNER, training.state, overlap=overlap)
    training.steps(1)
    found = set()
    for step in range(1, 40):
        training.snapshots.take(step=step, data_state={})
        whole = threading.Event()
        training.snapshots.go_on(whole.set)
        assert whole.wait(60)
        for parameter in training.model.parameters():
            parameter.data.mul_(0.999)
        with contextlib.suppress(InvalidInput):
            training.snapshots.settle()
            continue
        found.add(step)
    assert found, "no tensor's turn has come"


def test_change_that_is_taken_back_does_no_harm_without_overlap(tmp_path):
    """An evaluation with averaged weights, put back before the next step."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.snapshots = Snapshots(tmp_path, OWNER, training.state, overlap=False)
    training.steps(1)
    for step in range(1, 20):
        training.snapshots.take(step=step, data_state={})
        training.snapshots.go_on(lambda: None)
        kept = [one.detach().clone() for one in training.model.parameters()]
        with torch.no_grad():
            for parameter, value in zip(training.model.parameters(), kept, strict=True):
                parameter.zero_()
                parameter.copy_(value)
        training.snapshots.settle()


def test_without_overlap_everything_may_change_at_once(tmp_path):
    """All is copied before ``take`` returns; only the checksums are left to the thread."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.snapshots = Snapshots(tmp_path, OWNER, training.state, overlap=False)
    training.steps(1)
    take(training.snapshots, step=1, data_state={})
    expected = state_of(slot_path(tmp_path, 0))
    slot = training.snapshots.take(step=1, data_state={})
    training.snapshots.settle()  # waits for nothing: nothing has been let go on
    with torch.no_grad():
        training.model.first.weight.zero_()
    finish(training.snapshots)
    training.snapshots.wait_whole()
    assert state_of(slot_path(tmp_path, slot)) == expected


def test_state_that_comes_into_being_between_snapshots_makes_the_slots_anew(tmp_path):
    """A layer that thaws late, say: its moments are in the next snapshot."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    take(training.snapshots, step=0, data_state={})
    training.steps(1)
    slot = take(training.snapshots, step=1, data_state={})
    names = [entry.name for entry in verify_slot(slot_path(tmp_path, slot)).entries]
    assert "optimizer.state.first.weight.exp_avg" in names


def test_slots_take_turns_and_durable_is_apart(tmp_path):
    """The newer snapshot is never the one that is overwritten."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.snapshots.prepare()
    training.steps(1)
    assert [take(training.snapshots, step=s, data_state={}) for s in (1, 2, 3)] == [0, 1, 0]
    assert verify_slot(slot_path(tmp_path, 0)).step == 3
    assert verify_slot(slot_path(tmp_path, 1)).step == 2
    training.snapshots.restored(slot=0, step=3)
    assert take(training.snapshots, step=4, data_state={}) == 1
    training.snapshots.take_durable(step=4, data_state={"position": 4})
    finish(training.snapshots)
    assert verify_slot(durable_path(tmp_path)).data_state == {"position": 4}
    assert Control(control_path(tmp_path)).durable_busy


def test_replication_counts_from_the_newest_snapshot(tmp_path):
    """Nothing to protect, nothing to wait for; then the peer must have the newest step."""
    training = Training(tmp_path, 1, OPTIMIZERS["sgd"])
    agent = Control(control_path(tmp_path))
    assert training.snapshots.replicated
    take(training.snapshots, step=5, data_state={})
    assert not training.snapshots.replicated
    agent.replicated_step = 4
    assert not training.snapshots.replicated
    agent.replicated_step = 5
    assert training.snapshots.replicated
    agent.reset(replication_off=True)
    assert training.snapshots.replicated


def test_snapshots_of_a_past_that_was_given_up_are_gone(tmp_path):
    """After going back to a step, newer ones cannot be restored; a fresh start keeps none."""
    training = Training(tmp_path, 1, OPTIMIZERS["sgd"])
    for step in (8, 9, 10):
        take(training.snapshots, step=step, data_state={})
    assert held(tmp_path) == [10, 9]
    training.snapshots.restored(slot=1, step=9)
    assert held(tmp_path) == [None, 9]
    take(training.snapshots, step=10, data_state={})
    training.snapshots.restored(slot=0, step=10)
    assert held(tmp_path) == [10, 9]
    training.snapshots.begun_afresh()
    assert held(tmp_path) == [None, None]


def held(directory) -> list[int | None]:
    """Return the steps in the two slots."""
    claims = [read_preamble(slot_path(directory, slot)) for slot in range(2)]
    return [claim.step if claim is not None else None for claim in claims]


def changed_restore(tmp_path, other) -> None:
    """Keep a training's state and restore it into ``other``'s."""
    training = Training(tmp_path / "a", 1, OPTIMIZERS["adamw"])
    training.steps(1)
    take(training.snapshots, step=1, data_state={})
    with SlotReader(slot_path(tmp_path / "a", 0)) as reader:
        TrackedState(CPU, other).restore(SlotSource(reader))


def test_state_of_another_model_is_refused_by_name(tmp_path):
    """A shape, a missing tensor and another optimizer are each named."""
    with pytest.raises(StateMismatchError, match=r"model\.weight"):
        changed_restore(tmp_path / "1", {"model": nn.Linear(3, 3)})
    with pytest.raises(StateMismatchError, match=r"extra was kept as float32\[2\], now it is"):
        changed_restore(tmp_path / "2", {"extra": torch.zeros(3)})
    net = nn.Linear(3, 3)
    with pytest.raises(StateMismatchError, match="taken with 6 parameters in groups of"):
        changed_restore(tmp_path / "3", {"optimizer": torch.optim.AdamW(net.parameters())})


def test_damaged_tensor_is_refused_by_name_and_checksums(tmp_path):
    """A flipped bit in shared memory is never loaded."""
    training = Training(tmp_path, 1, OPTIMIZERS["adamw"])
    training.steps(1)
    take(training.snapshots, step=1, data_state={})
    path = slot_path(tmp_path, 0)
    entry = next(e for e in verify_slot(path).entries if e.name == "model.first.weight")
    with path.open("r+b") as file:
        file.seek(entry.offset)
        byte = file.read(1)[0]
        file.seek(entry.offset)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(RestoreFailedError, match=rf"model\.first\.weight.*{entry.checksum}"):
        training.restore(path)


def test_untrackable_things_are_refused(tmp_path):
    """What has no state to keep is named when it is tracked."""
    with pytest.raises(UnsupportedStateError, match="cannot track model: a int"):
        TrackedState(CPU, {"model": 3})


def test_random_states_come_back_together():
    """Python, numpy and torch draw the same numbers again."""
    import random

    import numpy as np

    randomness.seed_all(5, 1)
    tensors = dict(randomness.tensor_states(CPU))
    objects = randomness.object_states()

    def draw() -> tuple[float, float, float]:
        numpy_drawn = np.random.rand()  # noqa: NPY002 - the global generator is under test
        return random.random(), numpy_drawn, float(torch.rand(1))

    drawn = draw()
    randomness.restore(CPU, tensors.__getitem__, objects)
    assert draw() == drawn
    randomness.seed_all(5, 2)
    assert draw() != drawn
