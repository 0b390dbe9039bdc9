"""Refuses an optimizer that keeps state where no snapshot looks for it.

Kept are tensors and plain values directly in ``optimizer.state[parameter]``. What lies elsewhere
would be lost in a resume without a word, or make every snapshot one that cannot be restored. Asked
at each snapshot: most of it comes into being in the first step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from everstep.train.tree import UnsupportedStateError


def require_keepable(name: str, optimizer: Optimizer, tracked: Collection[Optimizer]) -> None:
    """Check that all of an optimizer's state is its parameters' own.

    Args:
        name: of the optimizer.
        optimizer: a tracked one.
        tracked: all tracked ones.

    Raises:
        UnsupportedStateError: names the key that is no parameter, or the optimizer inside.
    """
    for key in optimizer.state:
        if not isinstance(key, Tensor):
            raise UnsupportedStateError(
                f"{name}.state[{key!r}] belongs to no parameter, so no snapshot would hold it: "
                "keep it in the state of a parameter, or as an option of a parameter group"
            )
    for path, inner in _inside(optimizer):
        if inner.state and not any(inner.state is one.state for one in tracked):
            raise UnsupportedStateError(
                f"{name} ({type(optimizer).__name__}) keeps its state in another optimizer, "
                f"{name}.{path} ({type(inner).__name__}), of which no snapshot would hold any. "
                f"Track that one too, beside this: run.track(inner={name}.{path}, ...)"
            )


def require_flat(path: str, state: Mapping[str, Any]) -> None:
    """Check that a parameter's state holds tensors only directly.

    Raises:
        UnsupportedStateError: names the key under which one lies deeper.
    """
    for key, value in state.items():
        if not isinstance(value, Tensor) and _holds_tensor(value):
            raise UnsupportedStateError(
                f"{path}.{key} is a {type(value).__name__} with tensors in it, which no snapshot "
                f"would hold: keep each under a key of its own, such as {key}_0"
            )


def _inside(optimizer: Optimizer) -> Iterator[tuple[str, Optimizer]]:
    """Yield the optimizers that are attributes of one, alone or several together."""
    for name, value in vars(optimizer).items():
        match value:
            case Optimizer():
                yield name, value
            case list() | tuple() if value and isinstance(value[0], Optimizer):
                yield from ((f"{name}[{number}]", one) for number, one in enumerate(value))


def _holds_tensor(value: Any) -> bool:
    match value:
        case Tensor():
            return True
        case list() | tuple() | set() | frozenset():
            return any(map(_holds_tensor, value))
        case dict():
            return any(map(_holds_tensor, value.values()))
        case _:
            return False
