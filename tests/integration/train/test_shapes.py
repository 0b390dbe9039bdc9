"""What tracked state may do while a run goes on: come into being, be assigned; not change shape."""

import pytest
import torch
from torch import nn

from everstep.core.errors import InvalidInput
from everstep.memory.control import Control
from everstep.memory.layout import control_path, durable_path, slot_path
from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner
from everstep.train.endings import StateMismatchError
from everstep.train.slot_source import SlotSource
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState

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
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1),
}


class Growing:
    """An object that keeps whatever it is told to."""

    def __init__(self) -> None:
        self.kept = {"scale": torch.ones(3)}

    def state_dict(self):
        return self.kept

    def load_state_dict(self, kept) -> None:
        self.kept = kept


class Training:
    """A model with a buffer, its optimizer, an object of its own, and their snapshots."""

    def __init__(self, directory, make=OPTIMIZERS["adamw"]) -> None:
        self.directory = directory
        self.model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2).bfloat16())
        self.model.register_buffer("seen", torch.zeros(2))
        self.optimizer = make(self.model.parameters())
        self.growing = Growing()
        self.state = TrackedState(
            CPU, {"model": self.model, "optimizer": self.optimizer, "growing": self.growing}
        )
        self.snapshots = Snapshots(directory, OWNER, self.state)
        self.step_index = 0

    def step(self) -> None:
        hidden = self.model[1](self.model[0](torch.randn(8, 4)))
        self.model[2](hidden.bfloat16()).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step_index += 1

    def take(self) -> int:
        slot = self.snapshots.take(step=self.step_index, data_state={})
        self.snapshots.go_on(lambda: None)
        self.snapshots.wait_whole()
        return slot

    def sizes(self) -> list[int]:
        paths = [slot_path(self.directory, 0), slot_path(self.directory, 1)]
        return [path.stat().st_size for path in [*paths, durable_path(self.directory)]]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_moments_are_foreseen_as_the_first_step_makes_them(tmp_path, make):
    """Names, dtypes and shapes in their order; nothing of the optimizer or the generators moves."""
    training = Training(tmp_path, make)
    options = str(
        [{k: v for k, v in g.items() if k != "params"} for g in training.optimizer.param_groups]
    )
    random, state = torch.get_rng_state(), len(training.optimizer.state)
    foreseen = [(name, one.dtype, one.shape) for name, one in training.state.tensors(foreseen=True)]
    assert torch.equal(torch.get_rng_state(), random)
    assert len(training.optimizer.state) == state
    now = str(
        [{k: v for k, v in g.items() if k != "params"} for g in training.optimizer.param_groups]
    )
    assert now == options
    training.step()
    assert foreseen == [(name, one.dtype, one.shape) for name, one in training.state.tensors()]


def test_files_have_room_for_moments_before_the_first_step(tmp_path):
    """The first snapshot finds its files as large as they have to be."""
    training = Training(tmp_path)
    training.snapshots.prepare()
    before = training.sizes()
    training.step()
    training.take()
    assert training.sizes() == before
    numbers = sum(p.numel() * p.element_size() for p in training.model.parameters())
    assert min(before) > 3 * numbers


def test_sizes_are_told_before_there_is_any_file(tmp_path):
    """Whoever admits them sees what the files will have, and none is made when it refuses."""
    training = Training(tmp_path)
    told = []

    def refuse(sizes) -> None:
        told.append(sizes)
        raise InvalidInput("too much")

    with pytest.raises(InvalidInput, match="too much"):
        training.snapshots.prepare(refuse)
    assert not slot_path(tmp_path, 0).exists()
    training.snapshots.prepare(told.append)
    assert told[0] == told[1]
    assert [told[0].slot_bytes] * 2 + [told[0].durable_bytes] == training.sizes()


def test_an_optimizer_that_cannot_be_tried_is_planned_for_when_it_has_stepped(tmp_path):
    """Its moments are in the first snapshot all the same."""

    class Shy(torch.optim.SGD):
        def step(self, closure=None):
            if any(
                one.numel() < 5 and one.dim() == 2 for g in self.param_groups for one in g["params"]
            ):
                raise ValueError("so small")
            return super().step(closure)

    training = Training(tmp_path, lambda p: Shy(p, lr=0.1, momentum=0.9))
    training.snapshots.prepare()
    training.step()
    slot = training.take()
    with SlotReader(slot_path(tmp_path, slot)) as reader:
        entry = reader.entry("optimizer.state.0.weight.momentum_buffer")
    assert entry is not None
    assert entry.shape == (4, 4)


def test_an_assigned_buffer_is_kept_as_it_is_now(tmp_path):
    """Code may replace a buffer's tensor instead of writing into it."""
    training = Training(tmp_path)
    training.step()
    training.take()
    training.model.seen = training.model.seen + 5
    training.step()
    slot = training.take()
    with SlotReader(slot_path(tmp_path, slot)) as reader:
        assert SlotSource(reader).make("model.seen").tolist() == [5, 5]


def shrink_weight(training: Training) -> None:
    """Swap a weight for one that would be broadcast."""
    training.model[0].weight.data = torch.zeros(1, 4)


def widen_weight(training: Training) -> None:
    """Swap a bias for one of more bits."""
    training.model[0].bias.data = training.model[0].bias.data.double()


def grow_buffer(training: Training) -> None:
    """Assign a longer buffer."""
    training.model.seen = torch.zeros(3)


def round_moment(training: Training) -> None:
    """Keep a moment in fewer bits."""
    state = training.optimizer.state[training.model[0].weight]
    state["exp_avg"] = state["exp_avg"].half()


def grow_object(training: Training) -> None:
    """Let an object keep more of the same name."""
    training.growing.kept["scale"] = torch.ones(4)


CHANGES = {
    "parameter's shape": (shrink_weight, r"model\.0\.weight was float32\[4, 4\] and is .*\[1, 4\]"),
    "parameter's dtype": (widen_weight, r"model\.0\.bias was float32\[4\] and is float64\[4\]"),
    "buffer": (grow_buffer, r"model\.seen was float32\[2\] and is float32\[3\]"),
    "moment": (round_moment, r"optimizer\.state\.0\.weight\.exp_avg was float32.* float16"),
    "object's tensor": (grow_object, r"growing\.scale was float32\[3\] and is float32\[4\]"),
}


@pytest.mark.parametrize(("change", "refusal"), CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_shape_or_dtype_is_refused_by_name(tmp_path, change, refusal):
    """Copying it would broadcast or round in silence; the snapshot before stays as it is."""
    training = Training(tmp_path)
    training.step()
    kept = training.take()
    training.step()
    change(training)
    with pytest.raises(InvalidInput, match=refusal):
        training.take()
    with SlotReader(slot_path(tmp_path, kept)) as reader:
        assert reader.verify().step == 1


def test_a_buffer_that_became_none_is_refused_by_name(tmp_path):
    """There is nothing to keep of it, and a resume could not put it back."""
    training = Training(tmp_path)
    training.step()
    training.take()
    training.model.seen = None
    with pytest.raises(StateMismatchError, match=r"buffer model\.seen was a tensor"):
        training.take()


def test_a_replaced_parameter_is_refused_by_name(tmp_path):
    """The optimizer and the snapshot would go on with the old one, and nobody would know."""
    training = Training(tmp_path)
    training.step()
    training.take()
    training.model[0].weight = nn.Parameter(torch.ones(4, 4))
    with pytest.raises(StateMismatchError, match=r"parameter model\.0\.weight was replaced"):
        training.take()


def test_a_late_buffer_is_refused_by_name_unless_it_need_not_be_kept(tmp_path):
    """It has no place in any snapshot."""
    training = Training(tmp_path)
    training.step()
    training.model[0].register_buffer("cache", torch.zeros(2), persistent=False)
    training.take()
    training.step()
    training.model[0].register_buffer("extra", torch.zeros(2))
    with pytest.raises(StateMismatchError, match=r"model\.0\.extra was registered after"):
        training.take()


def test_an_object_may_keep_more_tensors_than_before(tmp_path):
    """What is new gets its place; everything else is as it was."""
    training = Training(tmp_path)
    training.step()
    training.take()
    training.growing.kept["bias"] = torch.full((2,), 7.0)
    training.step()
    slot = training.take()
    with SlotReader(slot_path(tmp_path, slot)) as reader:
        tree = SlotSource(reader).tree("growing")
    assert tree["bias"].tolist() == [7, 7]
    assert tree["scale"].tolist() == [1, 1, 1]


def test_parameters_that_an_optimizer_gets_later_are_refused(tmp_path):
    """Their moments would be in no snapshot, and no snapshot could be restored any more."""
    training = Training(tmp_path)
    training.step()
    training.take()
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    with pytest.raises(StateMismatchError, match=r"groups of \[6\] .* groups of \[6, 1\] now"):
        training.take()


def test_durable_snapshot_stays_whole_while_the_state_gets_more_tensors(tmp_path):
    """It is being uploaded: what is new gets its place when the file is written the next time."""
    training = Training(tmp_path)
    training.model[0](torch.randn(8, 4)).square().mean().backward()
    training.optimizer.step()  # the other parameters have no gradient yet, and no moments
    training.snapshots.take_durable(step=1, data_state={})
    training.take()
    before = durable_path(tmp_path).read_bytes()
    training.step()
    training.take()
    assert durable_path(tmp_path).read_bytes()[: len(before)] == before
    with SlotReader(durable_path(tmp_path)) as reader:
        assert reader.verify().step == 1
    training.snapshots.take_durable(step=2, data_state={})
    training.take()
    with SlotReader(durable_path(tmp_path)) as reader:
        assert reader.verify().step == 2


def test_without_a_peer_a_snapshot_counts_when_it_is_whole(tmp_path):
    """Else another rank overwrites the step before, and this one dies with half of this."""
    training = Training(tmp_path)
    control = Control(control_path(tmp_path))
    control.replication_off = True
    for step in (1, 2):
        training.step()
        assert training.snapshots.replicated
        training.snapshots.take(step=step, data_state={})
        assert not training.snapshots.replicated
        training.snapshots.go_on(lambda: None)
        training.snapshots.wait_whole()
        assert training.snapshots.replicated
    control.close()
