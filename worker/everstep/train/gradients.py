"""The global gradient norm, each element counted once, and clipping by it.

DTensor placements say what is whose: along a mesh dimension where a gradient is sharded every rank
owns its part; along one where it is replicated only the first rank does. Dimensions that a tensor's
mesh does not have (norms under tensor parallelism) hold equal copies, of which the one with the
lowest rank counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.optim import Optimizer


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, or the tensor itself."""
    # The attribute, because to_local() records a view in autograd and costs twenty times as much.
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001 - as the comment says


def as_dtensor(local: Tensor, like: DTensor) -> DTensor:
    """Return this rank's part of a tensor that lies as another one does.

    Not ``torch.empty_like``, which goes through DTensor dispatch: a restart counts milliseconds.
    """
    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def offsets_of(tensor: Tensor) -> tuple[int, ...]:
    """Return where this rank's part of a DTensor begins in the whole; zeros for other tensors."""
    if not isinstance(tensor, DTensor):
        return (0,) * tensor.dim()
    return _offsets(tensor.shape, tensor.device_mesh, tensor.placements)


@lru_cache(maxsize=1024)  # moments are laid out as their parameters are
def _offsets(shape: torch.Size, mesh: DeviceMesh, placements: tuple[Any, ...]) -> tuple[int, ...]:
    _, offsets = compute_local_shape_and_global_offset(shape, mesh, placements)
    return tuple(offsets)


class Gradients:
    """The gradients that one or more optimizers apply.

    Args:
        optimizers: whose parameters count.
        mesh: the run's mesh: pp, dp_replicate, dp_shard, tp.
    """

    def __init__(self, optimizers: Iterable[Optimizer], mesh: DeviceMesh) -> None:
        stage = _ranks_of_stage(mesh)
        parameters: list[Tensor] = [
            parameter
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._parameters = [(one, _is_owned(one, stage)) for one in parameters]
        self.locals: list[Tensor] = []
        self._owned: list[Tensor] = []

    def gather(self) -> None:
        """Look at the gradients that exist now."""
        self.locals = []
        self._owned = []
        for parameter, owned in self._parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            local = local_part(gradient)
            self.locals.append(local)
            if owned:
                self._owned.append(local)

    def squared_norm(self) -> float:
        """Return the sum of squares of this rank's own elements."""
        if not self._owned:
            return 0.0
        norms: Any = torch._foreach_norm(self._owned)  # noqa: SLF001 - what clip_grad_norm_ uses
        return float(torch.stack(norms).double().square().sum().item())

    def clip(self, norm: float, norm_max: float) -> None:
        """Scale every gradient so that the global norm is at most ``norm_max``."""
        if norm > norm_max:
            # The small term is torch.nn.utils.clip_grad_norm_'s.
            torch._foreach_mul_(self.locals, norm_max / (norm + 1e-6))


class GradientsOf:
    """Makes ``Gradients`` once for the parameters that a loop's optimizers step."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self._made: Gradients | None = None
        self._key: tuple[int, ...] = ()

    def __call__(self, optimizers: Iterable[Optimizer]) -> Gradients:
        """Return those of ``optimizers``."""
        kept = tuple(optimizers)
        groups = (group for one in kept for group in one.param_groups)
        key = tuple(id(parameter) for group in groups for parameter in group["params"])
        if self._made is None or key != self._key:
            self._made, self._key = Gradients(kept, self._mesh), key
        return self._made


def _ranks_of_stage(mesh: DeviceMesh) -> list[int]:
    """Return the ranks that share this rank's pipeline stage."""
    names = mesh.mesh_dim_names
    assert names is not None, "the run's mesh has named dimensions"
    assert names[0] == "pp", "the run's mesh begins with pp"
    stage: list[int] = mesh.mesh[mesh.get_local_rank("pp")].flatten().tolist()
    return stage


def _is_owned(parameter: Tensor, stage: list[int]) -> bool:
    first = min(stage)
    if not isinstance(parameter, DTensor):
        return torch.distributed.get_rank() == first
    mesh = parameter.device_mesh
    coordinate = mesh.get_coordinate()
    assert coordinate is not None, "a parameter lies on a mesh without this rank"
    if first not in mesh.mesh.flatten().tolist():
        return False
    return all(
        place == 0 or not placement.is_replicate()
        for place, placement in zip(coordinate, parameter.placements, strict=True)
    )
