"""Who sits where when a job's layout changes: near what its ranks are put together from.

Hosts of a pod swap seats of one size, so that each finds as much as can be of what its new ranks
need among what it holds of the old ones, its own snapshots and the copies that it keeps. The rest
comes over the network, which is right too, and slower. Greedy: the best match first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout, Placement
from everstep.core.resharding import sources_needed
from everstep.host_inventory.state import Host

Seats = list[tuple[Host, tuple[int, ...]]]


def settle(seats: Seats, old: Placement, layout: Layout) -> Seats:
    """Return the same seats and hosts, better matched; by first rank."""
    holders: dict[int, list[str]] = defaultdict(list)
    for seat in old.hosts:
        for rank in seat.ranks:
            holders[rank] += [seat.host_id, seat.replica_host_id]
    alike: dict[tuple[str, int], Seats] = defaultdict(list)
    for host, ranks in seats:
        alike[host.pod, len(ranks)].append((host, ranks))
    settled = [
        seat for _, some in sorted(alike.items()) for seat in _matched(some, holders, old, layout)
    ]
    return sorted(settled, key=lambda seat: seat[1])


def _matched(seats: Seats, holders: dict[int, list[str]], old: Placement, layout: Layout) -> Seats:
    hosts = {host.host_id: host for host, _ in seats}
    offers: list[tuple[int, tuple[int, ...], str]] = []
    for _, ranks in seats:
        found: dict[str, int] = defaultdict(int)
        for rank in _needed(old.layout, layout, ranks):
            for host_id in holders[rank]:
                found[host_id] += host_id in hosts
        offers += [(-count, ranks, host_id) for host_id, count in found.items() if count]
    taken: dict[tuple[int, ...], str] = {}
    free = dict.fromkeys(sorted(hosts))
    for _, ranks, host_id in sorted(offers):
        if ranks not in taken and host_id in free:
            taken[ranks] = host_id
            del free[host_id]
    left = iter(free)
    in_order = sorted(ranks for _, ranks in seats)
    return [(hosts[taken.get(ranks) or next(left)], ranks) for ranks in in_order]


def _needed(old: Layout, new: Layout, ranks: Sequence[int]) -> set[int]:
    try:
        return {one for rank in ranks for one in sources_needed(old, new, rank)}
    except InvalidInput:  # other stages: nothing of it can be used
        return set()
