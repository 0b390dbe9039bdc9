"""A rank's own shards as plain tensors, for checkpoint libraries that keep what a rank has.

NVRx's local checkpoints and DLRover's Flash Checkpoint take a nested dict a rank; DTensors are
given to them by their local parts, as their users with sharded models do.
"""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.workload.training import Training
from torch import Tensor

from everstep.train.gradients import local_part


def local_state(training: Training, step: int) -> dict[str, Any]:
    """Return the step, this rank's parameters and its optimizer state."""
    model = {}
    optimizer = {}
    for name, parameter in training.model.named_parameters():
        model[name] = local_part(parameter)
        kept = training.optimizer.state.get(parameter, {})
        optimizer[name] = {key: local_part(value) for key, value in kept.items()}
    return {"step": step, "model": model, "optimizer": optimizer}


@torch.no_grad()
def load_local_state(training: Training, state: dict[str, Any]) -> int:
    """Put the parameters and the optimizer state back; returns the step."""
    for name, parameter in training.model.named_parameters():
        local_part(parameter).copy_(state["model"][name])
        kept = state["optimizer"][name]
        training.optimizer.state[parameter] = {
            key: _like(parameter, value) for key, value in kept.items()
        }
    step: int = state["step"]
    return step


def _like(parameter: Tensor, kept: Tensor) -> Tensor:
    """Return the kept tensor, sharded as the parameter if it is one of its moments."""
    if kept.dim() == 0:
        return kept.clone()
    result = torch.empty_like(parameter, requires_grad=False)
    local_part(result).copy_(kept)
    return result
