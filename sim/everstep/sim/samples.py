"""Which samples the ranks of a simulated generation train on, by the loader's own arithmetic.

They know what they are told at the start: their layout, the size of their batch, and which batches
had other sizes before. The list of a step must not depend on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core.corrections import Corrections
from everstep.core.elastic import groups_of
from everstep.core.placement import Layout
from everstep.core.spec import JobSpec
from everstep.data.loader import BatchPlan, DataState

CORPUS: Final = 500  # samples: some runs begin it anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a step was made from: the place of its first sample in the stream, and the samples."""

    position: int
    first: int
    samples: tuple[int, ...]

    @property
    def end(self) -> int:
        """Return the place behind it."""
        return self.first + len(self.samples)


class Samples:
    """What the groups of one generation read."""

    def __init__(self, spec: JobSpec, layout: Layout, corrections: Corrections) -> None:
        self._groups = groups_of(layout)
        self._plan: BatchPlan | None = None
        if spec.data is None:
            return
        beginning = DataState()
        for one in corrections.skipped:
            beginning = beginning.skipping(one.first, one.end)
        # As everstep.train.correcting.
        sizes = [
            (beginning.seek(span.after_step).position if index else 0, span.samples)
            for index, span in enumerate(corrections.batches)
        ]
        self._plan = BatchPlan(
            seed=spec.seed,
            samples=CORPUS,
            global_batch=spec.data.global_batch,
            micro_batch=spec.data.micro_batch,
            sizes=tuple(sizes),
        )

    def taken(self, position: int) -> Taken | None:
        """Return what all groups together read at a position, in their order; None of no data."""
        plan = self._plan
        if plan is None:
            return None
        shares = (plan.share(position, group, self._groups) for group in range(self._groups))
        samples = tuple(one for share in shares for micro in share for one in micro)
        return Taken(position=position, first=plan.first_of(position), samples=samples)


def expected(spec: JobSpec, layout: Layout, taken: Taken, before: Taken | None) -> tuple[int, ...]:
    """Return what a step has to be made from, whatever was told.

    Args:
        spec: as it was launched.
        layout: of the ranks that make it.
        taken: by them; where batches were left out, it is believed where it begins.
        before: what the step before it was made from; None for the first one.
    """
    assert spec.data is not None
    size = spec.data.global_batch
    if spec.recovery.elastic_batch == "scale":
        size = size // spec.layout.dp * groups_of(layout)
    follows = before is None or taken.position == before.position + 1
    first = taken.first
    if follows:
        first = before.end if before is not None else 0
    plan = BatchPlan(seed=spec.seed, samples=CORPUS, global_batch=size, micro_batch=1)
    return tuple(plan.sample_at(first + number) for number in range(size))
