"""A module whose state dict gives out copies is refused when it is tracked; all others are kept."""

import pytest
import torch
from torch import nn

from everstep.train.state import TrackedState
from everstep.train.tree import UnsupportedStateError

CPU = torch.device("cpu")
ONE = nn.Parameter(torch.ones(1))


def copying(_module, found, _prefix, _metadata):
    """Copy all that is given out, as hooks do that gather or convert."""
    return {key: value.detach().clone() for key, value in found.items()}


def viewing(_module, found, _prefix, _metadata):
    """Give out other tensors of the same memory."""
    return {key: value.detach() for key, value in found.items()}


def only_adapters(_module, found, _prefix, _metadata):
    """Leave out what is frozen."""
    return {key: value for key, value in found.items() if value.requires_grad}


def hooked(hook, *, frozen=False) -> nn.Module:
    """Two layers behind a hook of ``state_dict``, the first of them frozen if asked for."""
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    module[0].requires_grad_(not frozen)
    module._register_state_dict_hook(hook)
    return module


def names(module) -> set[str]:
    """Track a module and an optimizer; returns what snapshots hold."""
    optimizer = torch.optim.SGD([one for one in module.parameters() if one.requires_grad] or [ONE])
    state = TrackedState(CPU, {"model": module, "optimizer": optimizer})
    return {name for name, _ in state.tensors()}


@pytest.mark.parametrize("frozen", [False, True])
def test_module_that_gives_out_copies_is_refused_by_name(frozen):
    """Its snapshots would hold what it was when it was tracked, for ever."""
    with pytest.raises(UnsupportedStateError, match=r"gives out a copy of model\.0\.weight"):
        names(hooked(copying, frozen=frozen))


def test_trained_parameter_that_is_left_out_is_refused_by_name():
    """A resume would go on with its fresh initialisation."""

    def without_last(_module, found, _prefix, _metadata):
        return {key: value for key, value in found.items() if key != "2.bias"}

    with pytest.raises(UnsupportedStateError, match=r"gives out nothing of model\.2\.bias"):
        names(hooked(without_last))


def test_parameter_that_no_optimizer_trains_may_be_left_out():
    """A judge that measures the loss, say, which every process loads."""
    module = nn.ModuleDict({"model": nn.Linear(4, 4), "judge": nn.Linear(4, 4)})

    def without_judge(_module, found, _prefix, _metadata):
        return {key: value for key, value in found.items() if "judge" not in key}

    module._register_state_dict_hook(without_judge)
    optimizer = torch.optim.SGD(module["model"].parameters())
    state = TrackedState(CPU, {"net": module, "optimizer": optimizer})
    assert [name for name, _ in state.tensors()] == ["net.model.weight", "net.model.bias"]


class FullyShardedDataParallel(nn.Module):
    """Gives out gathered copies, under other names than its parameters have."""

    def __init__(self) -> None:
        super().__init__()
        self.wrapped = nn.Linear(4, 4)

    def state_dict(self, **_):
        return {"weight": self.wrapped.weight.detach().clone()}


def test_module_that_gathers_is_refused_and_another_way_is_named():
    """The first generation of FSDP, which is like this one in what it gives out."""
    with pytest.raises(UnsupportedStateError, match=r"model\.wrapped\.weight.*fully_shard"):
        names(FullyShardedDataParallel())


def test_buffer_of_which_a_copy_is_given_out_is_refused_by_name():
    """Running means are trained as well."""

    def copying_buffers(_module, found, _prefix, _metadata):
        return {key: v if v.requires_grad else v.clone() for key, v in found.items()}

    with pytest.raises(UnsupportedStateError, match=r"a copy of model\.1\.running_mean"):
        names(hooked(copying_buffers))


def test_frozen_parameter_and_buffer_that_are_left_out_pass():
    """Adapters alone are kept, on a model that every process loads."""
    assert "model.0.weight" not in names(hooked(only_adapters, frozen=True))
    assert "model.2.weight" in names(hooked(only_adapters, frozen=True))


class Extra(nn.Linear):
    """Keeps more than tensors."""

    def get_extra_state(self):
        return {"calls": 3}

    def set_extra_state(self, state) -> None:
        pass


def tied() -> nn.Module:
    """Two layers with one weight."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


def passing() -> nn.Module:
    """A buffer that is not to be kept."""
    module = nn.Linear(4, 4)
    module.register_buffer("table", torch.ones(3), persistent=False)
    return module


MODULES = {
    "same memory": lambda: hooked(viewing),
    "tied": tied,
    "compiled": lambda: torch.compile(nn.Linear(4, 4), backend="eager"),
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "weight norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "extra state": lambda: Extra(4, 4),
    "frozen": lambda: nn.Linear(4, 4).requires_grad_(requires_grad=False),
    "not persistent": passing,
    "lazy": lambda: nn.LazyLinear(4),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(nn.Linear(4, 4)),
    "on no device": lambda: nn.Linear(4, 4, device="meta"),
    "empty": lambda: nn.Linear(0, 4, bias=False),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())
def test_module_that_gives_out_its_own_tensors_is_kept(make):
    """However they are wrapped, shared or left out."""
    assert names(make())
