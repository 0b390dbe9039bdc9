"""Blocks of a tensor: what two of them share, and what is left of one without others.

Shards are blocks: they begin somewhere and have a shape. All that resharding has to get right is
arithmetic on them, and it is here, without torch and without bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """The block of a tensor that begins at ``begin`` and has this ``shape``."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def end(self) -> tuple[int, ...]:
        """Where it ends, in each dimension; exclusive."""
        return tuple(b + size for b, size in zip(self.begin, self.shape, strict=True))

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def within(self, outer: Region) -> tuple[slice, ...]:
        """Return the slices that cut it out of ``outer``, which contains it."""
        return tuple(
            slice(begin - base, begin - base + size)
            for begin, base, size in zip(self.begin, outer.begin, self.shape, strict=True)
        )

    def __str__(self) -> str:
        spans = zip(self.begin, self.end, strict=True)
        return "[" + ", ".join(f"{begin}:{end}" for begin, end in spans) + "]"


def overlap(one: Region, other: Region) -> Region | None:
    """Return what both have, None when that is nothing."""
    begin = tuple(map(max, one.begin, other.begin))
    end = tuple(map(min, one.end, other.end))
    if any(e <= b for b, e in zip(begin, end, strict=True)):
        return None
    return Region(begin, tuple(e - b for b, e in zip(begin, end, strict=True)))


def without(region: Region, cuts: Iterable[Region]) -> tuple[Region, ...]:
    """Return disjoint blocks that make up ``region`` less all of ``cuts``."""
    left = [region] if region.size else []
    for cut in cuts:
        left = [piece for one in left for piece in _cut(one, cut)]
    return tuple(left)


def _cut(region: Region, cut: Region) -> list[Region]:
    """Slice off, dimension by dimension, what lies before and behind the shared block."""
    shared = overlap(region, cut)
    if shared is None:
        return [region]
    pieces: list[Region] = []
    begin, end = list(region.begin), list(region.end)
    for dim, (low, high) in enumerate(zip(shared.begin, shared.end, strict=True)):
        for lower, upper in ((begin[dim], low), (high, end[dim])):
            if lower < upper:
                low_corner = (*begin[:dim], lower, *begin[dim + 1 :])
                high_corner = (*end[:dim], upper, *end[dim + 1 :])
                shape = tuple(h - b for b, h in zip(low_corner, high_corner, strict=True))
                pieces.append(Region(low_corner, shape))
        begin[dim], end[dim] = low, high
    return pieces
