"""Foresees the state that an optimizer will make in its first step.

Moments come into being when training is under way, and two thirds of a snapshot are moments: only
who knows of them beforehand can make room, touch it, and refuse a job that does not fit before its
first step. Asked is a copy of the optimizer itself, with a parameter of a few elements of each kind
that it has. Rejected: a step with zero gradients on the real ones (weights decay, counters count);
a table of known optimizers (theirs are not the only ones).

Nothing depends on being right: what comes otherwise is planned for when it is there.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from everstep.train.gradients import as_dtensor, local_part

_SIDE: Final = 2  # of the parameter that is tried: one would look like a counter


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A tensor of a parameter's state; ``like`` its parameter, or of one element."""

    key: str
    dtype: torch.dtype
    like: bool
    shape: tuple[int, ...]


class Forecast:
    """What one optimizer will make, kind of parameter by kind of parameter."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._group_of = {
            id(one): group for group in optimizer.param_groups for one in group["params"]
        }
        self._known: dict[tuple[int, int, torch.dtype], Sequence[Moment]] = {}

    def of(self, parameter: Tensor) -> Sequence[Moment]:
        """Return the tensors to come, in their order; nothing when they cannot be foreseen."""
        if not parameter.requires_grad:
            return ()
        group = self._group_of[id(parameter)]
        kind = (id(group), parameter.dim(), parameter.dtype)
        if kind not in self._known:
            self._known[kind] = _tried(self._optimizer, group, local_part(parameter))
        return self._known[kind]


def stand_in(moment: Moment, parameter: Tensor) -> Tensor:
    """Return a tensor without memory of the moment's shape, dtype and layout."""
    if not moment.like:
        return torch.empty(moment.shape, dtype=moment.dtype, device="meta")
    local = torch.empty_like(local_part(parameter), dtype=moment.dtype, device="meta")
    return as_dtensor(local, parameter) if isinstance(parameter, DTensor) else local


def _tried(optimizer: Optimizer, group: dict[str, Any], like: Tensor) -> Sequence[Moment]:
    """Let a copy of the optimizer step once on a small parameter, and look at its state."""
    small = torch.zeros([_SIDE] * like.dim(), dtype=like.dtype, device=like.device)
    small.requires_grad_()
    small.grad = torch.zeros_like(small)
    try:
        trial = copy.copy(optimizer)  # without hooks and without a scheduler's hold on step()
        trial.state = defaultdict(dict)
        trial.param_groups = [{**group, "params": [small]}]
        with torch.random.fork_rng(devices=[]):
            trial.step()
    except Exception:  # noqa: BLE001 - whatever an optimizer of the user's raises: nothing is foreseen
        return ()
    moments: list[Moment] = []
    for key, value in trial.state.get(small, {}).items():
        if not isinstance(value, Tensor):
            continue
        like_it = value.shape == small.shape and like.dim() > 0
        if not like_it and value.numel() != 1:
            return ()  # grows with the parameter in a way that two elements do not tell
        moments.append(Moment(key=key, dtype=value.dtype, like=like_it, shape=tuple(value.shape)))
    return moments
