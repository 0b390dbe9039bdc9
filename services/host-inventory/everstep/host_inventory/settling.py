"""Who sits where when a job's layout changes: near what its ranks are put together from.

Hosts of a pod swap seats of one size, so that each finds as much as can be of what its new ranks
need among what it holds of the old ones, its own snapshots and the copies that it keeps. The rest
comes over the network, which is right too, and slower. Greedy: the best match first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Final

from everstep.core.placement import Layout, Placement
from everstep.core.resharding import sources_needed
from everstep.host_inventory.state import Host

Ranks = tuple[int, ...]
Seats = list[tuple[Host, Ranks]]
Kind = tuple[str, int]  # pod and how many ranks a seat has: hosts that can swap
Holders = dict[int, dict[int, list[str]]]  # by stage, and by the old block in it
Offers = dict[int, list[str]]  # hosts by how many old blocks they have

NOTHING: Final[frozenset[int]] = frozenset()
LAYOUTS_KEPT_MAX: Final = 32  # a job that shrinks and grows goes back and forth between a few


def settle(seats: Seats, old: Placement, layout: Layout) -> Seats:
    """Return the same seats and hosts, better matched; by first rank."""
    size = _block(seats, old, layout)
    alike: dict[Kind, Seats] = defaultdict(list)
    for host, ranks in seats:
        alike[host.pod, len(ranks)].append((host, ranks))
    holders = _holders(old, alike, size)
    needed = _needed(old.layout, layout, size)
    settled: Seats = []
    for kind, some in sorted(alike.items()):
        there = holders[kind]
        offers = [
            _offers(there, [rank // size for rank in ranks[::size]], needed) for _, ranks in some
        ]
        settled += _matched(some, offers)
    return sorted(settled, key=_ranks)


def _ranks(seat: tuple[Host, Ranks]) -> Ranks:
    return seat[1]


def _block(seats: Seats, old: Placement, layout: Layout) -> int:
    """Return how many ranks in a row are held, and needed, by the same hosts.

    A tensor-parallel group, as a rule: asked for once instead of for each of its ranks.
    """
    size = layout.tp
    if old.layout.tp != size:
        return 1
    numbers = tuple(range(max(layout.world_size, old.layout.world_size)))
    for ranks in chain([ranks for _, ranks in seats], [seat.ranks for seat in old.hosts]):
        for at in range(0, len(ranks), size):
            first, some = ranks[at], ranks if len(ranks) == size else ranks[at : at + size]
            if first % size or some != numbers[first : first + size]:
                return 1
    return size


def _holders(old: Placement, alike: Mapping[Kind, Seats], size: int) -> dict[Kind, Holders]:
    """Return which hosts of a kind have a snapshot of an old block, their own or a copy."""
    found: dict[Kind, Holders] = {kind: {} for kind in alike}
    theirs = {host.host_id: found[kind] for kind, some in alike.items() for host, _ in some}
    in_stage = old.layout.world_size // old.layout.pp // size
    for seat in old.hosts:
        blocks = [divmod(rank // size, in_stage) for rank in seat.ranks[::size]]
        for host_id in (seat.host_id, seat.replica_host_id):
            holders = theirs.get(host_id)
            if holders is not None:
                for stage, block in blocks:
                    holders.setdefault(stage, {}).setdefault(block, []).append(host_id)
    return found


@lru_cache(maxsize=LAYOUTS_KEPT_MAX)
def _needed(old: Layout, new: Layout, size: int) -> Sequence[frozenset[int]]:
    """Return for each new block of a stage the old ones that it is put together from.

    Both count from their stage's first block: stages are alike.
    """
    one, now = (replace(layout, pp=1, tp=layout.tp // size) for layout in (old, new))
    if old.pp != new.pp:  # its stages hold other layers: nothing of it can be used
        return [NOTHING] * now.world_size
    return [frozenset(sources_needed(one, now, block)) for block in range(now.world_size)]


def _offers(holders: Holders, blocks: Sequence[int], needed: Sequence[frozenset[int]]) -> Offers:
    """Return the hosts that hold something of what new blocks need, by how many old blocks."""
    by_stage: dict[int, frozenset[int]] = {}
    for block in blocks:
        stage, like = divmod(block, len(needed))
        before = by_stage.get(stage)
        by_stage[stage] = needed[like] if before is None else before | needed[like]
    found: list[str] = []
    for stage, wanted in by_stage.items():
        there = holders.get(stage, {})
        # There are far fewer than are wanted, in any one pod.
        found += chain.from_iterable([there[block] for block in wanted.intersection(there)])
    if len(set(found)) == len(found):
        return {1: found}
    counts: dict[str, int] = {}
    for host_id in found:
        counts[host_id] = counts.get(host_id, 0) + 1
    by_count: Offers = {}
    for host_id, count in counts.items():
        by_count.setdefault(count, []).append(host_id)
    return by_count


def _matched(seats: Seats, offers: Sequence[Offers]) -> Seats:
    """Give each seat the best host that is left, the best matches first; by first rank."""
    hosts = {host.host_id: host for host, _ in seats}
    in_order = sorted(zip([ranks for _, ranks in seats], offers, strict=True), key=itemgetter(0))
    taken: dict[int, str] = {}  # by the seat's place in this order
    free = dict.fromkeys(sorted(hosts))
    waiting = [(at, offered) for at, (_, offered) in enumerate(in_order)]
    for count in sorted({count for some in offers for count in some}, reverse=True):
        left = []
        for at, offered in waiting:
            still = [one for one in offered.get(count, ()) if one in free]
            if still:
                taken[at] = best = min(still)
                del free[best]
            else:
                left.append((at, offered))
        waiting = left
    rest = iter(free)
    return [(hosts[taken.get(at) or next(rest)], ranks) for at, (ranks, _) in enumerate(in_order)]
