"""An optimizer that no snapshot holds is refused at the first step that is made with it."""

import pytest
import torch
from torch import nn

from everstep.core.errors import InvalidInput
from everstep.train.state import TrackedState
from everstep.train.tracked_optimizers import tracked_ones

CPU = torch.device("cpu")


class App:
    """As the tutorials of PyTorch's checkpoints write it: one object that keeps all."""

    def __init__(self, optimizer) -> None:
        self.parts = [optimizer]

    def state_dict(self):
        return {"optimizer": self.parts[0].state_dict()}

    def load_state_dict(self, kept) -> None:
        self.parts[0].load_state_dict(kept["optimizer"])


class Wrapper(torch.optim.SGD):
    """Steps another optimizer and shares its state, as torch's own wrappers do."""

    def __init__(self, inner) -> None:
        super().__init__([nn.Parameter(torch.ones(1))], lr=0.1)
        self.state = inner.state


@pytest.fixture
def optimizer():
    """Of one parameter, with momentum."""
    return torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1, momentum=0.9)


def state(**tracked):
    """What was named to ``run.track``."""
    return TrackedState(CPU, tracked)


def test_tracked_optimizers_are_taken(optimizer):
    """One, or several."""
    other = torch.optim.Adam([nn.Parameter(torch.ones(1))])
    both = state(optimizers=[optimizer, other])
    assert tracked_ones(optimizer, both) == [optimizer]
    assert tracked_ones((other, optimizer), both) == [other, optimizer]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_optimizer_that_is_not_tracked_is_refused(optimizer, momentum):
    """Also one without moments: its rate would not come back."""
    other = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1, momentum=momentum)
    with pytest.raises(InvalidInput, match=r"\(SGD, 1 .* run\.track\(optimizer="):
        tracked_ones([optimizer, other], state(optimizer=optimizer))


def test_scheduler_keeps_no_optimizer(optimizer):
    """It only knows one."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    with pytest.raises(InvalidInput, match="SGD"):
        tracked_ones(optimizer, state(scheduler=scheduler))


def test_optimizer_that_a_tracked_object_keeps_is_taken(optimizer):
    """Its state dict holds it; nothing is lost."""
    assert tracked_ones(optimizer, state(app=App(optimizer))) == [optimizer]


def test_wrapper_of_a_tracked_optimizer_is_taken(optimizer):
    """Its moments are the tracked one's."""
    wrapper = Wrapper(optimizer)
    assert tracked_ones(wrapper, state(optimizer=optimizer)) == [wrapper]


def test_run_that_tracks_nothing_steps_any_optimizer(optimizer):
    """It has no snapshots that could lack it."""
    assert tracked_ones(optimizer, None) == [optimizer]
