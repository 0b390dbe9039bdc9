"""Notices an optimizer that steps the model and that no snapshot holds.

A resume would give it no moments and another rate, and no error would tell. Rejected: to let one
without moments pass (its rate is state, and with momentum the same line would be refused).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from everstep.core.errors import InvalidInput
from everstep.train.state import TrackedState


def tracked_ones(
    given: Optimizer | Sequence[Optimizer], state: TrackedState | None
) -> list[Optimizer]:
    """Return the optimizers of a step as a list.

    Args:
        given: to ``run.step``.
        state: what was named to ``run.track``; None: nothing, and then there are no snapshots.

    Raises:
        InvalidInput: one is in no snapshot.
    """
    optimizers = [given] if isinstance(given, Optimizer) else list(given)
    if state is None:
        return optimizers
    for one in optimizers:
        if not _is_kept(one, state.optimizers.values(), state.objects):
            count = sum(len(group["params"]) for group in one.param_groups)
            raise InvalidInput(
                f"run.step() was given an optimizer ({type(one).__name__}, {count} parameters) "
                "that run.track() was not: no snapshot would hold its moments and rates, and a "
                "resume would go on without them. Name it before the first step, beside the "
                "model: run.track(optimizer=...)"
            )
    return optimizers


def _is_kept(one: Optimizer, tracked: Iterable[Optimizer], objects: Mapping[str, Any]) -> bool:
    """Whether it is tracked, shares a tracked one's moments, or is part of a tracked object."""
    return any(one is other or one.state is other.state for other in tracked) or any(
        _holds(thing, one) for thing in objects.values()
    )


def _holds(thing: Any, one: Optimizer) -> bool:
    if isinstance(thing, LRScheduler):  # refers to its optimizer, and keeps nothing of it
        return False
    for value in getattr(thing, "__dict__", {}).values():
        parts = value.values() if isinstance(value, dict) else value
        if value is one or (
            isinstance(value, dict | list | tuple) and any(part is one for part in parts)
        ):
            return True
    return False
