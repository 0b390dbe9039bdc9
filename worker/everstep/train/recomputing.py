"""Activation checkpointing whose second run must give the first one's bits.

Where activations are computed again in the backward pass, the same rank has done the same work
twice, from the same inputs and random numbers. Comparing the two costs a fingerprint of each
output, and a difference needs no other rank to tell who was wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from everstep.train.bits import Digest

NAMES_MAX: Final = 8  # told of one step; what is wrong in more places is no less wrong

_compared: list[tuple[str, Digest, Digest]] = []


def checkpoint(function: Callable[..., Any], *args: Any, name: str, **kwargs: Any) -> Any:
    """Call ``function`` as ``torch.utils.checkpoint.checkpoint`` does, and compare its outputs.

    Numbers that ``function`` draws must come from torch's generators, which are put back for the
    second run, and its bits must be the same each time.

    Args:
        function: what is computed again in the backward pass.
        args: of it.
        name: of the module, for the report.
        kwargs: of it.
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    return torch_checkpoint(
        _Twice(function, name),
        *args,
        use_reentrant=False,
        early_stop=False,  # else the second run ends before it has its output
        **kwargs,
    )


def taken() -> tuple[str, ...]:
    """Return where outputs have differed since it was asked last; waits for the accelerator."""
    if not _compared:
        return ()
    compared = _compared[:]
    _compared.clear()
    wrong = {name for name, first, again in compared if first.value() != again.value()}
    return tuple(sorted(wrong)[:NAMES_MAX])


class _Twice:
    """A function that is called once in the forward pass and once more in the backward pass."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._name = name
        self._first: Digest | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._function(*args, **kwargs)
        digest = Digest()
        with torch.no_grad():
            for one in pytree.tree_leaves(output):
                if isinstance(one, Tensor):
                    digest.add(one)
        if self._first is None:
            self._first = digest
        else:
            _compared.append((self._name, self._first, digest))
            self._first = digest
        return output
