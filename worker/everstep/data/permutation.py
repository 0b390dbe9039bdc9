"""A keyed permutation of 0..n-1, computed index by index.

The shuffled order of a corpus is never stored: the sample at any place of it is computed, in
constant time and memory, so 15e12 tokens need no index and a restart needs nothing but a number.

A Feistel network over the next power of four, with cycle walking back into the range: a bijection
by construction, whatever its round function is. Four rounds of a 64-bit mixer (splitmix64's
finalizer) are far more than shuffling needs; this is no cipher. Integer arithmetic only, so every
platform computes the same order. Rejected: a stored ``numpy`` permutation (120 GB for 15e9
samples), and affine maps ``a*i + b mod n`` (neighbours stay visibly related).

Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002 (cycle walking).
"""

from __future__ import annotations

from typing import Final

ROUNDS: Final = 4
_MASK_64: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, splitmix64's increment


def mix(value: int) -> int:
    """Mix 64 bits: splitmix64's finalizer."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK_64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK_64
    return value ^ (value >> 31)


class Permutation:
    """A bijection of ``0..size-1`` onto itself.

    Args:
        size: how many indices; at least 1.
        keys: integers that select the permutation, e.g. ``(seed, epoch)``; 64 bits of each count.
    """

    def __init__(self, size: int, *keys: int) -> None:
        if size < 1:
            raise ValueError(f"a permutation needs at least one index, got size {size}")
        self.size = size
        self._half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self._half_mask = (1 << self._half_bits) - 1
        state = 0
        for key in keys:
            state = mix((state ^ key) + _GOLDEN & _MASK_64)
        self._round_keys = tuple(
            mix(state + (number + 1) * _GOLDEN & _MASK_64) for number in range(ROUNDS)
        )

    def __call__(self, index: int) -> int:
        """Return where ``index`` goes.

        The network's range is below four times ``size``, so four walks are expected at most.
        """
        if not 0 <= index < self.size:
            raise IndexError(f"index {index} is outside 0..{self.size - 1}")
        value = self._network(index)
        while value >= self.size:
            value = self._network(value)
        return value

    def _network(self, value: int) -> int:
        left, right = value >> self._half_bits, value & self._half_mask
        for key in self._round_keys:
            left, right = right, left ^ (mix(right ^ key) & self._half_mask)
        return left << self._half_bits | right
