"""Says which ranks hold the same bits, and how a sum over all ranks shows whether they do.

A tensor is held alike by the ranks that differ only in some of the mesh dimensions: by FSDP
replicas over ``dp_replicate``, by tensor-parallel ranks what is not cut for them. ``over`` is the
sum of the dimensions' numbers (``Over``). The ranks that hold the same tensors over the same
dimensions are a *circle*; each tensor belongs to one, so that all who hold it are asked.

In the sum each rank has a weight: of a circle of n the first has n - 1, the others -1. Equal
numbers come to nothing, so one word for the whole world tells whether any circle disagrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from itertools import product
from typing import Final

from everstep.core.placement import Layout
from everstep.core.resharding import Coordinate, coordinate_of, rank_at


class Over(IntEnum):
    """A mesh dimension over which a tensor may be held more than once."""

    REPLICATE = 1
    SHARD = 2
    TP = 4


# Over these, whatever a rank got wrong in a step is summed and comes out alike for all: only what
# a rank holds itself can differ.
DATA: Final = Over.REPLICATE | Over.SHARD

# float64 is exact below 2**53. What all circles of one kind add, of either sign, is less than the
# size of the world times the largest number: 2**49 for 2**17 ranks, and there are 7 kinds at most.
WORD_BITS: Final = 32


def circle_of(layout: Layout, rank: int, over: int) -> tuple[int, ...]:
    """Return the ranks that hold what ``rank`` holds over these dimensions, sorted."""
    at = coordinate_of(layout, rank)
    replicates = range(layout.dp_replicate) if over & Over.REPLICATE else (at.replicate,)
    shards = range(layout.dp_shard) if over & Over.SHARD else (at.shard,)
    columns = range(layout.tp) if over & Over.TP else (at.tp,)
    return tuple(
        rank_at(layout, Coordinate(pp=at.pp, replicate=replicate, shard=shard, tp=tp))
        for replicate, shard, tp in product(replicates, shards, columns)
    )


@lru_cache(maxsize=16)
def circle_numbers(layout: Layout, over: int) -> tuple[int, ...]:
    """Return by rank the first rank of its circle: what tells one circle from another."""
    places = (coordinate_of(layout, rank) for rank in range(layout.world_size))
    return tuple(
        rank_at(
            layout,
            Coordinate(
                pp=at.pp,
                replicate=0 if over & Over.REPLICATE else at.replicate,
                shard=0 if over & Over.SHARD else at.shard,
                tp=0 if over & Over.TP else at.tp,
            ),
        )
        for at in places
    )


def neighbour_of(layout: Layout, rank: int, over: Over) -> int | None:
    """Return another rank that differs in this dimension alone; None if it is of size one."""
    at = coordinate_of(layout, rank)
    match over:
        case Over.REPLICATE:
            other = replace(at, replicate=(at.replicate + 1) % layout.dp_replicate)
        case Over.SHARD:
            other = replace(at, shard=(at.shard + 1) % layout.dp_shard)
        case Over.TP:
            other = replace(at, tp=(at.tp + 1) % layout.tp)
    return None if other == at else rank_at(layout, other)


def word_of(layout: Layout, rank: int, fingerprints: Mapping[int, int]) -> float:
    """Return what a rank adds to the sum: zero in all if every circle agrees.

    Numbers that differ leave it at zero by chance once in 2**32.

    Args:
        layout: of the job.
        rank: whose.
        fingerprints: by ``over``.
    """
    return float(
        sum(
            _weight(layout, rank, over) * (fingerprint % (1 << WORD_BITS))
            for over, fingerprint in sorted(fingerprints.items())
        )
    )


def _weight(layout: Layout, rank: int, over: int) -> int:
    at = coordinate_of(layout, rank)
    size, is_first = 1, True
    for dimension, length, place in (
        (Over.REPLICATE, layout.dp_replicate, at.replicate),
        (Over.SHARD, layout.dp_shard, at.shard),
        (Over.TP, layout.tp, at.tp),
    ):
        if over & dimension:
            size *= length
            is_first = is_first and place == 0
    return size - 1 if is_first else -1
