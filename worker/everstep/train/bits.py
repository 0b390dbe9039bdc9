"""Fingerprints of tensors' bits: equal for equal bits, whatever the numbers mean.

On CPUs it is xxh3 over the memory. On accelerators nothing is copied to the host: the elements, as
integers, are multiplied by odd weights and summed modulo 2**64, so that any single bit that differs
is seen for certain and others but for one case in 2**64. The two kinds of numbers differ, and are
never compared with each other: ranks of one run have one kind of device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
import xxhash
from torch import Tensor

from everstep.train.gradients import local_part

# Elements that are weighted at once: three buffers of 8 MB on the device.
BLOCK: Final = 1 << 20
# Odd, so that multiplying by them loses nothing; the golden ratio's bits, which are well mixed.
STEP: Final = -7046029254386353131  # 0x9e3779b97f4a7c15 as a signed number
_WORDS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Digest:
    """Folds the bits of tensors, in the order in which they come, into one number of 64 bits."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()
        self._sums: list[Tensor] = []  # on the device: reading them waits for it

    def add(self, tensor: Tensor) -> None:
        """Take this rank's part of a tensor as it is now."""
        local = local_part(tensor.detach())
        if local.device.type == "cpu":
            self._hash.update(local.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            self._sums.append(weighted_sum(local))

    def add_bytes(self, data: bytes) -> None:
        """Take something else."""
        self._hash.update(data)

    def value(self) -> int:
        """Return the number. Waits for the accelerator; what was added there comes last."""
        if self._sums:
            sums = torch.stack(self._sums).cpu()
            self._sums.clear()
            self._hash.update(sums.numpy().tobytes())
        return self._hash.intdigest()


@torch.no_grad()
def weighted_sum(tensor: Tensor) -> Tensor:
    """Return a device's fingerprint of a tensor: one int64, on the same device."""
    flat = tensor.contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    words = flat.view(_WORDS[flat.element_size()])
    weights = _weights(tensor.device)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for block in torch.split(words, BLOCK):
        part = (block.to(torch.int64) * weights[: block.numel()]).sum()
        total = total * STEP + part
    return total


@lru_cache(maxsize=4)
def _weights(device: torch.device) -> Tensor:
    numbers = torch.arange(1, BLOCK + 1, dtype=torch.int64, device=device)
    return (numbers * STEP) | 1
