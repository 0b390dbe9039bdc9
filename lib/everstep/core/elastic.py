"""Which smaller layouts a job may go on under when hosts are short, the most wanted first.

Whole data-parallel replicas go: stages and tensor-parallel groups stay as they are, because what a
rank computes in them is the model's. ``dp_replicate`` shrinks first: every rank then keeps exactly
the shards that fitted its chip. Only when not even one whole replica fits is ``dp_shard`` cut,
which makes every shard larger, and then the most groups come first. The global batch is a fixed
list of micro-batches, so only a number of groups that divides the list will do.

Rejected: the most groups whatever their shards. A replica that is cut into fewer pieces needs more
memory a chip, and a job that runs out of it does not run at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from everstep.core.placement import Layout
from everstep.core.spec import JobSpec, LayoutSpec

# More would be a message of its own; the batch lists that people use have fewer divisors.
LAYOUTS_MAX: Final = 128


def full_layout(spec: JobSpec) -> Layout:
    """Return the layout that a job's ranks are to have: what a person asked for.

    An audit has the ranks of one replica, and its spec the layout of the job that it looks at.
    """
    sizes = spec.layout.model_dump()
    return Layout(**sizes) if spec.audit is None else Layout(**{**sizes, "dp_replicate": 1})


def smaller_layouts(spec: JobSpec, dp_min: int = 0) -> tuple[Layout, ...]:
    """Return the layouts that will do with fewer hosts, the most wanted first; none to wait.

    Args:
        spec: of the job.
        dp_min: with fewer data-parallel groups it was found not to fit; the spec may say more.
    """
    return tuple(islice(_smaller(spec, dp_min), LAYOUTS_MAX))


def larger_layouts(spec: JobSpec, now: Layout) -> tuple[Layout, ...]:
    """Return the layouts that would be better than the one of now, the most wanted first."""
    better: list[Layout] = []
    # A runner asks after every event, and a job that has shrunk is nearly as large as it can be.
    for layout in chain((full_layout(spec),), islice(_smaller(spec), LAYOUTS_MAX)):
        if layout == now:
            return tuple(better)
        better.append(layout)
    return ()


def spec_under(spec: JobSpec, now: Layout) -> JobSpec:
    """Return the spec as the ranks of a layout are told it."""
    if now == full_layout(spec):
        return spec
    sizes = LayoutSpec(pp=now.pp, dp_replicate=now.dp_replicate, dp_shard=now.dp_shard, tp=now.tp)
    changes: dict[str, Any] = {"layout": sizes}
    if spec.data is not None:
        samples = batch_of(spec, groups_of(now))
        changes["data"] = spec.data.model_copy(update={"global_batch": samples})
    return spec.model_copy(update=changes)


def groups_of(layout: Layout) -> int:
    """Return how many data-parallel groups a layout has."""
    return layout.dp_replicate * layout.dp_shard


def batch_of(spec: JobSpec, groups: int) -> int:
    """Return the samples of a global batch that so many groups share; 0 without data."""
    if spec.data is None:
        return 0
    if spec.recovery.elastic_batch == "keep":
        return spec.data.global_batch
    return spec.data.global_batch // spec.layout.dp * groups


def rate_of(spec: JobSpec, groups: int) -> float:
    """Return what the learning rate is multiplied by while so many groups share a batch."""
    share = groups / spec.layout.dp
    if spec.recovery.elastic_batch == "keep" or spec.recovery.elastic_rate == "keep":
        return 1.0
    return math.sqrt(share) if spec.recovery.elastic_rate == "sqrt" else share


def _smaller(spec: JobSpec, dp_min: int = 0) -> Iterator[Layout]:
    """Yield all that ``smaller_layouts`` takes the first ones of."""
    if spec.recovery.no_spare != "elastic":
        return
    full = spec.layout
    fewer = [(count, full.dp_shard) for count in range(full.dp_replicate - 1, 0, -1)]
    largest: dict[int, tuple[int, int]] = {}  # by groups: of as many, the one with most shards
    for shard in range(1, full.dp_shard):
        for replicate in range(1, full.dp_replicate + 1):
            largest[replicate * shard] = (replicate, shard)
    known = {replicate * shard for replicate, shard in fewer}
    fewer += [largest[groups] for groups in sorted(largest.keys() - known, reverse=True)]
    for replicate, shard in fewer:
        if replicate * shard >= dp_min and _will_do(spec, replicate * shard):
            yield Layout(pp=full.pp, dp_replicate=replicate, dp_shard=shard, tp=full.tp)


def _will_do(spec: JobSpec, groups: int) -> bool:
    if groups < spec.recovery.dp_min or groups >= spec.layout.dp:
        return False
    if spec.recovery.elastic_batch == "scale":
        return True  # each group keeps its share
    return spec.data is None or not spec.data.global_batch % (spec.data.micro_batch * groups)
