"""How sure a replay's saving is: a paired bootstrap over the stretches between failures.

The record and the policy are replayed on the same failures, so each stretch has a difference of
its own, and most of what chance did to the run cancels. Stretches are drawn with replacement; the
saving is a share of the time drawn, so that a draw of many short stretches, which is a run with
many failures, counts as one. Waits for hosts reach over several stretches: their intervals are too
narrow, which the page of the planner says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from everstep.planner.replay import Replayed
from everstep.planner.statistics import quantile

RESAMPLES: Final = 1_000
FAILURES_MIN: Final = 5  # resamples of fewer stretches are a handful of different runs
LOW: Final = 0.025
HIGH: Final = 0.975

Progress = Callable[[int, int], None]  # resamples done, of so many


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a policy would have saved: useful time [ms] of the record, and its share of the wall.

    ``share_low`` to ``share_high`` is the 95 % interval; None if the record is too short for one.
    """

    saved_ms: int
    share: float
    share_low: float | None = None
    share_high: float | None = None
    resamples: int = 0


def saving(
    before: Replayed,
    after: Replayed,
    *,
    failures: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Saving:
    """Return what is saved from one replay of a record to another one.

    Args:
        before: the record's own policy.
        after: another one, of the same record.
        failures: that nobody asked for, in the record.
        seed: of the resamples.
        progress: is told how far it is.
    """
    walls = before.block_walls_ms
    assert after.block_walls_ms == walls, "both replays are of one record"
    wall_ms = sum(walls)
    saved_ms = after.useful_ms - before.useful_ms
    known = Saving(saved_ms=saved_ms, share=saved_ms / wall_ms)
    if failures < FAILURES_MIN:
        return known
    pairs = [
        (late - early, wall)
        for early, late, wall in zip(
            before.block_useful_ms, after.block_useful_ms, walls, strict=True
        )
    ]
    rng = random.Random(f"{seed}/bootstrap")  # noqa: S311  # no secrets
    drawn: list[float] = []
    for i in range(RESAMPLES):
        sample = rng.choices(pairs, k=len(pairs))
        passed_ms = sum(wall for _, wall in sample)
        drawn.append(sum(saved for saved, _ in sample) / passed_ms if passed_ms else known.share)
        if progress is not None:
            progress(i + 1, RESAMPLES)
    drawn.sort()
    return Saving(
        saved_ms=saved_ms,
        share=known.share,
        share_low=quantile(drawn, LOW),
        share_high=quantile(drawn, HIGH),
        resamples=RESAMPLES,
    )
