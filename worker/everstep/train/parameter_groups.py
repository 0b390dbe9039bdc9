"""Notices an optimizer that gets or loses parameters while the run goes on."""

from __future__ import annotations

from collections.abc import Mapping

from torch.optim import Optimizer

from everstep.train.endings import StateMismatchError


def group_sizes(optimizer: Optimizer) -> list[int]:
    """Return how many parameters each group has."""
    return [len(group["params"]) for group in optimizer.param_groups]


class ParameterGroups:
    """The groups of tracked optimizers, as they were when they were tracked."""

    def __init__(self, optimizers: Mapping[str, Optimizer]) -> None:
        self._optimizers = dict(optimizers)
        self._sizes = {name: group_sizes(one) for name, one in self._optimizers.items()}

    def require_same(self) -> None:
        """Check the sizes.

        Raises:
            StateMismatchError: no snapshot would hold what was added, and none could be restored.
        """
        for name, optimizer in self._optimizers.items():
            sizes = group_sizes(optimizer)
            if sizes != self._sizes[name]:
                raise StateMismatchError(
                    f"{name} had parameters in groups of {self._sizes[name]} when run.track() was "
                    f"called, and has them in groups of {sizes} now: no snapshot would hold the "
                    "state of the new ones. Add every group before run.track(); one that is to "
                    "begin later, with a rate of 0"
                )
