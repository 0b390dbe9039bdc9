"""Finds slow spells in step times: stretches in which a host held all others up.

A running median over a window, so that one outlier (a save, a garbage collection) is none, and the
usual pace is the median of the whole run, so that a spell of up to half of it is still seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from everstep.planner.history import Spell

WINDOW: Final = 11  # steps; a spell fills more than half of it before the median moves
SHARE_MIN: Final = 0.05  # above the usual: below, steps differ as much on sound hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A step that took ``took_ms`` and was done ``done_ms`` after the job was submitted."""

    done_ms: int
    took_ms: float


def spells_in(steps: Sequence[Timed]) -> tuple[tuple[Spell, ...], int]:
    """Return the spells in steps, and how much longer the steps in them took in all [ms].

    Args:
        steps: in order, without the first of each generation.
    """
    if len(steps) < WINDOW:
        return (), 0
    usual = median(step.took_ms for step in steps)
    limit = usual * (1 + SHARE_MIN)
    slow = [value >= limit for value in _running([step.took_ms for step in steps])]
    found: list[Spell] = []
    added_ms = 0.0
    for first, last in _runs(slow):
        spell = [step.took_ms for step in steps[first : last + 1]]
        factor = fmean(spell) / usual
        if len(spell) * 2 <= WINDOW or factor < 1 + SHARE_MIN:
            continue
        begin = steps[first].done_ms - round(steps[first].took_ms)
        if found and begin < found[-1].end_ms:
            begin = found[-1].end_ms
        found.append(Spell(begin_ms=max(begin, 0), end_ms=steps[last].done_ms, factor=factor))
        added_ms += sum(spell) - usual * len(spell)
    return tuple(found), round(added_ms)


def _running(values: Sequence[float]) -> list[float]:
    """Return the median around each value; at the ends of as many as there are."""
    half = WINDOW // 2
    return [median(values[max(i - half, 0) : i + half + 1]) for i in range(len(values))]


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the first and last index of each run of true flags."""
    runs: list[tuple[int, int]] = []
    for i, flag in enumerate(flags):
        if not flag:
            continue
        if runs and runs[-1][1] == i - 1:
            runs[-1] = (runs[-1][0], i)
        else:
            runs.append((i, i))
    return runs
