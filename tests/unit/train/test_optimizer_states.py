"""An optimizer with state that no snapshot would hold is refused as soon as it has any."""

import pytest
import torch
from torch import nn

from everstep.train.state import TrackedState
from everstep.train.tree import UnsupportedStateError

CPU = torch.device("cpu")


class Own(torch.optim.Optimizer):
    """Does in a step what it was told."""

    def __init__(self, parameters, act) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.act = act

    def step(self) -> None:
        self.act(self)


class Outer(torch.optim.SGD):
    """Steps another optimizer, which keeps the state, as ZeroRedundancyOptimizer does."""

    def __init__(self, inner) -> None:
        super().__init__([one for group in inner.param_groups for one in group["params"]], lr=0.1)
        self.inner = inner

    def step(self) -> None:
        self.inner.step()


class Several(Outer):
    """Several inside."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.inner = [inner]

    def step(self) -> None:
        self.inner[0].step()


@pytest.fixture
def model():
    """With gradients."""
    module = nn.Linear(2, 2)
    module(torch.ones(1, 2)).sum().backward()
    return module


def keep_after_a_step(model, **optimizers) -> None:
    """Track before the first step, as runs do, and take what a snapshot takes after it."""
    state = TrackedState(CPU, {"model": model, **optimizers})
    state.moving()
    optimizers["optimizer"].step()
    state.moving()


@pytest.mark.parametrize("value", [1, {"count": 1}])
def test_state_of_no_parameter_is_refused_by_its_key(model, value):
    """A count of steps for all parameters, say."""
    optimizer = Own(model.parameters(), lambda one: one.state.update(steps=value))
    with pytest.raises(UnsupportedStateError, match=r"optimizer\.state\['steps'\] belongs to no"):
        keep_after_a_step(model, optimizer=optimizer)


@pytest.mark.parametrize("value", [[torch.ones(2)], (1, {"a": torch.ones(2)})])
def test_tensors_deeper_in_a_parameters_state_are_refused_by_name(model, value):
    """Preconditioners are often kept in lists."""
    optimizer = Own(model.parameters(), lambda one: one.state[model.weight].update(GG=value))
    with pytest.raises(UnsupportedStateError, match=r"optimizer\.state\.weight\.GG is a [lt]"):
        keep_after_a_step(model, optimizer=optimizer)


def test_plain_values_in_a_parameters_state_are_kept(model):
    """Numbers and lists of them need no place."""
    state = {"count": 1, "window": [1, 2]}
    optimizer = Own(model.parameters(), lambda one: one.state[model.weight].update(state))
    keep_after_a_step(model, optimizer=optimizer)


@pytest.mark.parametrize(("kind", "name"), [(Outer, "inner"), (Several, r"inner\[0\]")])
def test_optimizer_whose_state_is_in_another_one_is_refused_and_told_a_way(model, kind, name):
    """Its own is empty, so nothing at all would be kept; tracked as well, that one is."""
    inner = torch.optim.AdamW(model.parameters())
    with pytest.raises(UnsupportedStateError, match=rf"optimizer \({kind.__name__}\).*{name} \(A"):
        keep_after_a_step(model, optimizer=kind(inner))
    inner = torch.optim.AdamW(model.parameters())
    keep_after_a_step(model, optimizer=kind(inner), inner=inner)


def test_optimizer_with_another_one_that_keeps_nothing_passes(model):
    """Plain gradient descent has no state to lose."""
    keep_after_a_step(model, optimizer=Outer(torch.optim.SGD(model.parameters(), lr=0.1)))


def test_optimizer_that_shares_the_state_of_another_one_passes(model):
    """Torch's own wrappers do."""
    inner = torch.optim.AdamW(model.parameters())
    outer = Outer(inner)
    outer.state = inner.state
    keep_after_a_step(model, optimizer=outer)
