"""Makes the optimizer state that a restore fills: tensors that hold anything.

Pages are most of a restore on CPUs: to make 1 GB of them takes 0.40 s in pages of 4 KiB and 0.06 s
in pages of 2 MiB, to copy into it another 0.05 s. So what lies as its parameter does shares one
piece of memory for which the system is asked for large pages; where it has none, they are small.
Each tensor has a storage of its own there, so that nobody who saves or copies one takes the others
along; the piece goes when the last of them does.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from everstep.memory.slot import ALIGNMENT_BYTES
from everstep.train.gradients import as_dtensor, local_part

LIKE_PARAMETER: Final = "parameter"
PLAIN: Final = "plain"
LARGE_PAGE_BYTES: Final = 2 << 20  # of x86-64; on machines with larger ones the piece is all small


def make_state(wanted: Sequence[tuple[Mapping[str, Any], Tensor]]) -> list[Tensor]:
    """Make a tensor for each description (``kind, dtype, shape, on_cpu``) and its parameter.

    A DTensor if the parameter is one and it lies alike.
    """
    pairs = [(described, local_part(parameter)) for described, parameter in wanted]
    dtypes = [getattr(torch, described["dtype"]) for described, _ in pairs]
    sizes = [
        _plain_bytes(local, dtype) if described["kind"] == LIKE_PARAMETER else 0
        for (described, local), dtype in zip(pairs, dtypes, strict=True)
    ]
    piece = _large_pages(sum(map(_aligned, sizes)))
    made: list[Tensor] = []
    begin = 0
    for (described, local), dtype, size in zip(pairs, dtypes, sizes, strict=True):
        if described["kind"] != LIKE_PARAMETER:
            device = "cpu" if described["on_cpu"] else local.device
            made.append(torch.empty(described["shape"], dtype=dtype, device=device))
        elif size and piece is not None:
            part = piece[begin : begin + size]
            made.append(torch.frombuffer(part, dtype=dtype).view(local.shape))
            begin += _aligned(size)
        else:
            made.append(torch.empty_like(local, dtype=dtype, requires_grad=False))
    return [
        as_dtensor(one, parameter)
        if described["kind"] == LIKE_PARAMETER and isinstance(parameter, DTensor)
        else one
        for one, (described, parameter) in zip(made, wanted, strict=True)
    ]


def _plain_bytes(local: Tensor, dtype: torch.dtype) -> int:
    """Return how many bytes it takes on this host, one element behind the other; 0 elsewhere."""
    if local.device.type != "cpu" or not local.is_contiguous():
        return 0
    return local.numel() * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _large_pages(size: int) -> memoryview | None:
    """Return fresh memory that begins with a large page; None if it would not fill one."""
    if size < LARGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    whole = -(-size // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES
    memory = mmap.mmap(-1, whole + LARGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    begin = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % LARGE_PAGE_BYTES
    return memoryview(memory)[begin : begin + whole]
