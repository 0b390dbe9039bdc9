"""Sees each rank's gradients as its own micro-batches made them, before ranks add them up.

FSDP hands every group of parameters to its reduce-scatter as one flat tensor, and that may be
another object than its own (``set_custom_reduce_scatter``): ours looks and passes on. With one
shard FSDP calls no reduce-scatter, but it still has both buffers made by the same object, the
second one when the first is filled; so that is when we look, with any number of shards. What a
hybrid layout reduces over replicas comes later still.

Parameters that FSDP does not have are looked at when autograd has accumulated their gradient:
before DDP's reducer, which is told after that, and before any collective of user code.

Rejected: hooks on FSDP's gathered parameters (they are made anew, and hold the gradients of one
micro-batch at a time), and gradients after the reduction (equal on all ranks: they name nobody).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from everstep.train.bits import Digest
from everstep.train.gradients import local_part

Look = Callable[[Tensor], object]


class LocalGradients:
    """Fingerprints and norms of local gradients; costs a call a tensor while nobody asks.

    Args:
        modules: the tracked ones, FSDP or not.
        loose: all parameters that are optimized, of modules or not.
        norms: whether norms are wanted, of every step.
    """

    def __init__(
        self, modules: Iterable[nn.Module], loose: Iterable[Tensor] = (), *, norms: bool
    ) -> None:
        self._norms_wanted = norms
        self._norms: dict[int, Tensor] = {}
        self._digest: Digest | None = None
        self.changes: list[Look] = []  # faults: called before anybody looks
        managed: set[int] = set()
        parts = [part for module in modules for part in module.modules()]
        for part in parts:
            if isinstance(part, FSDPModule):
                managed |= self._watch_groups(part)
        inside = [one for part in parts for one in part.parameters(recurse=False)]
        # A sharded one of a module that is not tracked would be seen behind its reduction.
        outside = [one for one in loose if not isinstance(one, DTensor)]
        for parameter in (*inside, *outside):
            if parameter.requires_grad and id(parameter) not in managed:
                managed.add(id(parameter))  # once, however many modules share it
                self._watch_parameter(parameter)

    def begin(self) -> None:
        """Fingerprint gradients from now on, from scratch."""
        self._digest = Digest()
        self._norms.clear()

    def end(self) -> int:
        """Return the fingerprint of what has been seen since ``begin``, and stop."""
        assert self._digest is not None, "begin comes first"
        digest, self._digest = self._digest, None
        return digest.value()

    def take_squared_norm(self) -> float:
        """Return the sum of squares of what has been seen since it was asked last; 0: not asked."""
        if not self._norms:
            return 0.0
        norms = torch.stack(list(self._norms.values()))
        self._norms.clear()
        return float(norms.double().square().sum().item())

    def _watch_groups(self, module: FSDPModule) -> set[int]:
        managed: set[int] = set()
        # The public setter replaces what is there, and refuses modules with several groups.
        for group in module._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001 - as said above
            managed |= {id(one.sharded_param) for one in group.fsdp_params}
            inner = group._reduce_scatter_comm  # noqa: SLF001 - as said above
            if not isinstance(inner, _Watched):  # several modules may share a group
                watched: Any = _Watched(inner, partial(self._look, id(group)))
                group._reduce_scatter_comm = watched  # noqa: SLF001 - as said above
        return managed

    def _watch_parameter(self, parameter: Tensor) -> None:
        def look(whose: Tensor) -> None:
            if whose.grad is not None:
                self._look(id(whose), local_part(whose.grad))

        parameter.register_post_accumulate_grad_hook(look)  # type: ignore[no-untyped-call]  # torch's

    @torch.no_grad()
    def _look(self, key: int, gradient: Tensor) -> None:
        for change in self.changes:
            change(gradient)
        if self._digest is not None:
            self._digest.add(gradient)
        if self._norms_wanted:
            self._norms[key] = torch.linalg.vector_norm(gradient, dtype=torch.float32)


class _Watched:
    """A reduce-scatter of FSDP's that shows its input.

    FSDP asks it for two buffers, one after the other: the input, which it then fills, and the
    output.
    """

    def __init__(self, inner: Any, look: Look) -> None:
        self._inner = inner
        self._look = look
        self._input: Tensor | None = None

    def allocate(self, *args: Any, **kwargs: Any) -> Tensor:
        if self._input is not None:
            self._look(self._input)
        buffer: Tensor = self._inner.allocate(*args, **kwargs)
        self._input = buffer if self._input is None else None
        return buffer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner(*args, **kwargs)
