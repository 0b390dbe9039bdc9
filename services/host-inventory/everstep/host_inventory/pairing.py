"""Which host keeps copies of which host's snapshots.

Hosts are paired, because pairs lose the least: with two hosts lost at random out of N, only the
other half of a pair is fatal (Gemini, SOSP'23: P(no pair lost) = C(N/2, k) 2^k / C(N, k)), while in
a ring every neighbour is. An odd host makes one ring of three, so every host keeps exactly one
other host's copies and memory is the same everywhere.

A partner should share as little as possible with a host. What must be shared is given up in this
order, the least likely to be lost together first:

1. a data-parallel group: its hosts fail together only when one evicts the whole group;
2. a pipeline group: the group that is evicted on a hang or a wrong loss (ByteRobust);
3. a power domain: fails rarely, but at once;
4. a pod: one switch, one rack, one maintenance window: the most common joint loss.

Sorted by pods, largest first, host i and host i + n/2 are in different pods wherever that is
possible at all; partners are then exchanged between pairs to mend the rest. With few hosts, where
one bad pair weighs most, all pairings are compared instead, so none is better. Rejected: an optimal
matching for any number (blossom), cubic in hosts for a difference that no failure record shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

from everstep.core.record import Record

# Base 3, because the penalties of two pairs are compared at once: 2 x (1 + 3 + 9) < 27.
DATA_PARALLEL: Final = 1
PIPELINE: Final = 3
POWER: Final = 9
POD: Final = 27

# Exchanges tried for each pair: near ones (neighbours differ in stage or index) and a spread over
# the rest. Bounds the work at 2,048 hosts to some 10^5 comparisons (benchmarks/inventory.py).
NEAR_EXCHANGES: Final = 32
SPREAD_EXCHANGES: Final = 32
PASSES_MAX: Final = 4
# All pairings of so many hosts are compared: 105 of 7 or 8, about a millisecond. Of 16 hosts there
# are two million.
COMPARED_HOSTS_MAX: Final = 8


class Seat(Record, frozen=True, kw_only=True):
    """A host with its domains; ``stages`` and ``pipelines`` are bit sets of its ranks' groups."""

    host_id: str
    pod: str
    power: str
    stages: int
    pipelines: int


def pair(seats: Sequence[Seat]) -> dict[str, str]:
    """Return for every host the one that keeps its snapshots; "" when it is alone.

    Args:
        seats: in the order of their first ranks.

    Returns:
        Partners are mutual, but for one ring of three when the number of hosts is odd.
    """
    if len(seats) < 2:
        return {seat.host_id: "" for seat in seats}
    sizes = Counter(seat.pod for seat in seats)
    ordered = sorted(seats, key=lambda seat: (-sizes[seat.pod], seat.pod))
    odd = ordered.pop(0) if len(ordered) % 2 else None
    half = len(ordered) // 2
    left, right = ordered[:half], ordered[half:]
    floor = _shared_by_all(seats)
    for _ in range(PASSES_MAX):
        if not _exchange(left, right, floor):
            break
    groups: list[_Group] = list(zip(left, right, strict=True))
    if odd is not None:
        # What the ring costs more than the pair that it takes in.
        added = [(_cost((a, b, odd)) - _cost((a, b)), i) for i, (a, b) in enumerate(groups)]
        _, i = min(added)
        groups[i] = (*groups[i], odd)
    if len(seats) <= COMPARED_HOSTS_MAX:
        groups = min((groups, *_all_groups(ordered + ([odd] if odd else []))), key=_sum)
    return {a.host_id: b.host_id for group in groups for a, b in _around(group)}


def penalty(a: Seat, b: Seat) -> int:
    """Return the weight of what two hosts share; an unnamed power domain is shared by nobody."""
    return (
        (POD if a.pod == b.pod else 0)
        + (POWER if a.power and a.power == b.power else 0)
        + (PIPELINE if a.pipelines & b.pipelines else 0)
        + (DATA_PARALLEL if a.stages & b.stages else 0)
    )


def _exchange(left: list[Seat], right: list[Seat], floor: int) -> bool:
    """Swap partners between pairs wherever that lowers the sum; say whether any was swapped."""
    half = len(left)
    spread = max(half // SPREAD_EXCHANGES, 1)
    offsets = sorted(
        {*range(1, min(half, NEAR_EXCHANGES + 1)), *range(spread, half, spread)} - {half}
    )
    costs = [penalty(a, b) for a, b in zip(left, right, strict=True)]
    swapped = False
    for i in range(half):
        for offset in offsets if costs[i] > floor else ():
            j = (i + offset) % half
            now, mine = costs[i] + costs[j], penalty(left[i], right[j])
            if mine >= now:  # as most are
                continue
            other = penalty(left[j], right[i])
            if mine + other < now:
                right[i], right[j] = right[j], right[i]
                costs[i], costs[j] = mine, other
                swapped = True
    return swapped


def _shared_by_all(seats: Sequence[Seat]) -> int:
    """Return the penalty that every pair pays, so that nobody looks for a better partner."""
    first = seats[0]
    stages, pipelines = first.stages, first.pipelines
    for seat in seats:
        stages, pipelines = stages & seat.stages, pipelines & seat.pipelines
    return (
        (POD if all(seat.pod == first.pod for seat in seats) else 0)
        + (POWER if first.power and all(seat.power == first.power for seat in seats) else 0)
        + (PIPELINE if pipelines else 0)
        + (DATA_PARALLEL if stages else 0)
    )


_Group = tuple[Seat, ...]  # a pair, or the ring of three


def _around(group: _Group) -> Iterator[tuple[Seat, Seat]]:
    """Yield each host with the one that keeps its copies."""
    yield from zip(group, (*group[1:], group[0]), strict=True)


def _cost(group: _Group) -> int:
    """Return what all hosts of a group share with those that keep their copies."""
    return sum(penalty(a, b) for a, b in _around(group))


def _sum(groups: Sequence[_Group]) -> int:
    return sum(_cost(group) for group in groups)


def _all_groups(seats: Sequence[Seat]) -> Iterator[list[_Group]]:
    """Yield every way to pair the hosts, an odd number with one ring of three."""
    if not seats:
        yield []
        return
    if len(seats) % 2:
        firsts: Iterator[_Group] = combinations(seats, 3)
    else:
        firsts = ((seats[0], other) for other in seats[1:])
    for first in firsts:
        rest = [seat for seat in seats if seat not in first]
        for groups in _all_groups(rest):
            yield [first, *groups]
