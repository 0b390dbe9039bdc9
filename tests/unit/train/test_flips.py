"""One bit, where and when it is said, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everstep.core.errors import InvalidInput
from everstep.faults.kinds import Part, at
from everstep.train.flips import Flips, flip_bit, refuse
from everstep.train.state import TrackedState

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
STEP = 2


class Small:
    """Two layers, an optimizer, and a rank that does these flips."""

    def __init__(self, *flips, snapshots: Path | None = None, set_aside=refuse):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.state = TrackedState(
            torch.device("cpu"), {"model": self.model, "optimizer": self.optimizer}
        )
        self.done = []
        self.flips = Flips(flips, self._strikes, snapshots, set_aside=set_aside)
        self.flips.watch(self.state, 0)

    def _strikes(self, flip, details):
        self.done.append((flip.part, dict(details)))
        return True

    def step(self, index: int) -> float:
        loss = self.model(torch.ones(5, 4) * (index + 1)).square().mean()
        loss.backward()
        self.flips.reduced(index)
        self.optimizer.step()
        self.flips.updated(index)
        self.optimizer.zero_grad()
        return float(loss.detach())

    def run(self, steps: int = STEP + 2) -> list[dict[str, torch.Tensor]]:
        """The state after each step."""
        states = []
        for index in range(steps):
            self.step(index)
            states.append({name: one.detach().clone() for name, one in self.state.tensors()})
        return states


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> set[str]:
    """Return the names of tensors that are not the same."""
    return {name for name in a if not torch.equal(a[name], b[name])}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(st.data())
@settings(deadline=None)
def test_flipped_bit_is_one_bit_and_comes_back(dtype, data):
    """Twice is as if never; once is one bit of one element."""
    values = torch.arange(24).reshape(2, 3, 4).to(dtype)
    tensor = values.clone()
    element = data.draw(st.integers(0, 23))
    bit = data.draw(st.integers(0, values.element_size() * 8 - 1))
    flip_bit(tensor, element=element, bit=bit)
    changed = tensor.view(torch.uint8).flatten() ^ values.view(torch.uint8).flatten()
    assert changed.count_nonzero() == 1
    assert int(changed.max()) == 1 << bit % 8
    assert int(changed.argmax()) // values.element_size() == element
    flip_bit(tensor, element=element, bit=bit)
    assert torch.equal(tensor.view(torch.uint8), values.view(torch.uint8))


@pytest.mark.parametrize(("element", "bit"), [(24, 0), (-2, 0), (0, 32), (0, -2)])
def test_bit_that_is_not_there_is_refused(element, bit):
    """The numbers are in the message."""
    with pytest.raises(InvalidInput, match=f"bit {bit} of element {element}.*24 elements of 32"):
        flip_bit(torch.zeros(24), element=element, bit=bit)


def test_flipped_parameter_is_wrong_from_its_step_on():
    """The update itself is right; one element of one tensor is not."""
    flip = at(rank=0, step=STEP).flip(Part.PARAMETER, tensor="0.weight", element=5, bit=22)
    small = Small(flip)
    right, wrong = Small().run(), small.run()
    assert [differing(a, b) for a, b in zip(right[:STEP], wrong[:STEP], strict=True)] == [set()] * 2
    assert differing(right[STEP], wrong[STEP]) == {"model.0.weight"}
    off = right[STEP]["model.0.weight"] != wrong[STEP]["model.0.weight"]
    assert off.flatten().nonzero().tolist() == [[5]]
    assert small.done == [(Part.PARAMETER, {"tensor": "model.0.weight", "element": 5, "bit": 22})]


def test_flipped_moment_leaves_the_parameters_of_its_step():
    """They follow a step later."""
    flip = at(rank=0, step=STEP).flip(Part.MOMENT, tensor="0.weight.exp_avg", bit=26)
    right, wrong = Small().run(), Small(flip).run()
    assert differing(right[STEP], wrong[STEP]) == {"optimizer.state.0.weight.exp_avg"}
    assert "model.0.weight" in differing(right[STEP + 1], wrong[STEP + 1])


@pytest.mark.parametrize("part", [Part.GRADIENT, Part.REDUCED_GRADIENT])
def test_flipped_gradient_goes_into_the_update(part):
    """One parameter and its moments are wrong behind it."""
    flip = at(rank=0, step=STEP).flip(part, tensor="1.weight", element=0, bit=30)
    small = Small(flip)
    right, wrong = Small().run(), small.run()
    assert differing(right[STEP - 1], wrong[STEP - 1]) == set()
    assert {name.split(".")[-2] for name in differing(right[STEP], wrong[STEP])} <= {"1", "weight"}
    assert "optimizer.state.1.weight.exp_avg" in differing(right[STEP], wrong[STEP])
    assert [part_ for part_, _ in small.done] == [part]


def test_flipped_activation_goes_through_what_follows():
    """Once: the same module's other passes are right."""
    flip = at(rank=0, step=STEP).flip(Part.ACTIVATION, tensor="0", element=1, bit=29)
    clean, small = Small(), Small(flip)
    losses = [(clean.step(i), small.step(i)) for i in range(STEP + 1)]
    assert [a == b for a, b in losses] == [True, True, False]
    assert small.done == [(Part.ACTIVATION, {"tensor": "model.0", "element": 1, "bit": 29})]


@given(st.integers(0, 50), st.sampled_from([Part.PARAMETER, Part.MOMENT, Part.REDUCED_GRADIENT]))
@settings(deadline=None, max_examples=20)
def test_choice_follows_from_the_fault_alone(rank, part):
    """The same fault flips the same bit in another process."""
    flip = at(rank=rank, step=1).flip(part)
    first, second = Small(flip), Small(flip)
    first.run(), second.run()
    assert first.done == second.done
    assert len(first.done) == 1


def test_name_that_is_not_there_is_refused_with_those_that_are():
    """Before the first step."""
    with pytest.raises(InvalidInput, match=r"no parameter 'none' .*model\.0\.bias, model\.0\.w"):
        Small(at(rank=1, step=0).flip(Part.PARAMETER, tensor="none"))


@pytest.mark.parametrize(
    ("part", "where", "why"),
    [
        (Part.PARAMETER, {"tensor": "none"}, "no parameter 'none'"),
        (Part.PARAMETER, {"tensor": "0.weight", "bit": 40}, "no bit 40"),
        (Part.MOMENT, {"tensor": "none"}, "no moment 'none'"),
        (Part.REDUCED_GRADIENT, {"tensor": "0.weight", "element": 999}, "of element 999"),
        (Part.GRADIENT, {"tensor": "0.weight", "bit": 40}, "no bit 40"),
        (Part.ACTIVATION, {"tensor": "none"}, "no activation 'none'"),
        (Part.ACTIVATION, {"tensor": "0", "bit": 40}, "no bit 40"),
    ],
)
def test_flip_that_cannot_be_is_set_aside_and_the_run_is_as_without_it(part, where, why):
    """Whoever is told says what was wrong; nothing is noted as done."""
    told = []
    impossible = at(rank=0, step=STEP).flip(part, **where)
    small = Small(impossible, set_aside=lambda flip, error: told.append((flip, str(error))))
    right, run = Small().run(), small.run()
    assert [differing(a, b) for a, b in zip(right, run, strict=True)] == [set()] * len(right)
    assert ([flip for flip, _ in told], small.done) == ([impossible], [])
    assert why in told[0][1]
