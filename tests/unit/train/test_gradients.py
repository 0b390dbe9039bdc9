"""The gradients that count are those of the parameters that the optimizers have now."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from everstep.train.gradients import GradientsOf

ALONE = SimpleNamespace(
    mesh_dim_names=("pp", "dp_replicate", "dp_shard", "tp"),
    mesh=torch.zeros(1, 1, 1, 1, dtype=torch.int64),
    get_local_rank=lambda _: 0,
)


@pytest.fixture(autouse=True)
def _first_rank(monkeypatch):
    """There is one rank, in no process group."""
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)


def parameter(gradient: float) -> nn.Parameter:
    """One element with a gradient."""
    made = nn.Parameter(torch.ones(1))
    made.grad = torch.tensor([gradient])
    return made


def test_parameters_that_are_added_later_count():
    """A gradient that is not finite would be applied, and no norm would show it."""
    optimizer = torch.optim.SGD([parameter(3.0)], lr=0.1)
    gradients_of = GradientsOf(ALONE)
    gradients_of([optimizer]).gather()
    assert gradients_of([optimizer]).squared_norm() == 9
    optimizer.add_param_group({"params": [parameter(4.0)]})
    gradients = gradients_of([optimizer])
    gradients.gather()
    assert gradients.squared_norm() == 25


def test_they_are_looked_for_once_as_long_as_the_parameters_are_the_same():
    """Done at every step."""
    optimizer = torch.optim.SGD([parameter(3.0)], lr=0.1)
    gradients_of = GradientsOf(ALONE)
    assert gradients_of([optimizer]) is gradients_of([optimizer])
