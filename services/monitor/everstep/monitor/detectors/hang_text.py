"""Writes grouped stacks for people."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from everstep.monitor.detectors.hang_stacks import Group, Grouping

GROUPS_MAX: Final = 6  # more places than that are no majority and outliers, but a run at work
FRAMES_MAX: Final = 12  # innermost; further out all ranks look alike
HOSTS_MAX: Final = 4
RANGES_MAX: Final = 8


def described(grouping: Grouping) -> str:
    """Return the groups, those of outliers marked, each with its innermost frames."""
    lines = []
    for group in grouping.groups[:GROUPS_MAX]:
        mark = ", stands out" if set(group.ranks) & set(grouping.outliers) else ""
        lines.append(f"{_headline(group)}{mark}")
        lines += [f"    {frame}" for frame in group.frames[-FRAMES_MAX:]]
    if len(grouping.groups) > GROUPS_MAX:
        lines.append(f"and {len(grouping.groups) - GROUPS_MAX} more places")
    return "\n".join(lines)


def ranges(ranks: Iterable[int]) -> str:
    """Return ranks as ``0-3, 7``, the first few ranges of them."""
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])
    ]
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:RANGES_MAX]]
    return ", ".join(parts) + (", ..." if len(runs) > RANGES_MAX else "")


def _headline(group: Group) -> str:
    count = len(group.ranks)
    hosts = ", ".join(group.hosts[:HOSTS_MAX])
    more = ", ..." if len(group.hosts) > HOSTS_MAX else ""
    name = "1 rank" if count == 1 else f"{count} ranks"
    where = f": {group.place.where}" if group.place.where else ""
    return f"{name} ({ranges(group.ranks)}) on {hosts}{more}: {group.place.role}{where}"
