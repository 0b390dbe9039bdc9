"""Who sits where when a job's layout changes: near what its ranks are put together from.

Hosts of a pod swap seats of one size, so that each finds as much as can be of what its new ranks
need among what it holds of the old ones, its own snapshots and the copies that it keeps. The rest
comes over the network, which is right too, and slower. Greedy: the best match first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from everstep.core.placement import Layout, Placement
from everstep.core.resharding import sources_needed
from everstep.host_inventory.state import Host

Seats = list[tuple[Host, tuple[int, ...]]]
Kind = tuple[str, int]  # pod and how many ranks a seat has: hosts that can swap
Holders = dict[int, dict[int, list[str]]]  # by stage, and by the old block in it

NOTHING: Final[frozenset[int]] = frozenset()


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
        offers = {
            ranks: _offers(holders[kind], [rank // size for rank in ranks[::size]], needed)
            for _, ranks in some
        }
        settled += _matched(some, offers)
    return sorted(settled, key=lambda seat: seat[1])


def _block(seats: Seats, old: Placement, layout: Layout) -> int:
    """Return how many ranks in a row are held, and needed, by the same hosts.

    A tensor-parallel group, as a rule: asked for once instead of for each of its ranks.
    """
    size = layout.tp
    held = [ranks for _, ranks in seats] + [seat.ranks for seat in old.hosts]
    blocks = [ranks[at : at + size] for ranks in held for at in range(0, len(ranks), size)]
    whole = all(
        ranks[0] % size == 0 and ranks == tuple(range(ranks[0], ranks[0] + size))
        for ranks in blocks
    )
    return size if whole and old.layout.tp == size else 1


def _holders(old: Placement, alike: Mapping[Kind, Seats], size: int) -> dict[Kind, Holders]:
    """Return which hosts of a kind have a snapshot of an old block, their own or a copy."""
    kinds = {host.host_id: kind for kind, some in alike.items() for host, _ in some}
    found: dict[Kind, Holders] = {kind: {} for kind in alike}
    in_stage = old.layout.world_size // old.layout.pp // size
    for seat in old.hosts:
        blocks = [divmod(rank // size, in_stage) for rank in seat.ranks[::size]]
        for host_id in (seat.host_id, seat.replica_host_id):
            if host_id in kinds:
                holders = found[kinds[host_id]]
                for stage, block in blocks:
                    holders.setdefault(stage, {}).setdefault(block, []).append(host_id)
    return found


def _needed(old: Layout, new: Layout, size: int) -> list[frozenset[int]]:
    """Return for each new block of a stage the old ones that it is put together from.

    Both count from their stage's first block: stages are alike.
    """
    one, now = (replace(layout, pp=1, tp=layout.tp // size) for layout in (old, new))
    if old.pp != new.pp:  # its stages hold other layers: nothing of it can be used
        return [NOTHING] * now.world_size
    return [frozenset(sources_needed(one, now, block)) for block in range(now.world_size)]


def _offers(
    holders: Holders, blocks: Sequence[int], needed: Sequence[frozenset[int]]
) -> dict[int, list[str]]:
    """Return the hosts that hold something of what new blocks need, by how many old blocks."""
    by_stage: dict[int, frozenset[int]] = {}
    for block in blocks:
        stage, like = divmod(block, len(needed))
        before = by_stage.get(stage)
        by_stage[stage] = needed[like] if before is None else before | needed[like]
    counts: dict[str, int] = {}
    for stage, wanted in by_stage.items():
        there = holders.get(stage, {})
        for block in there.keys() & wanted:
            for host_id in there[block]:
                counts[host_id] = counts.get(host_id, 0) + 1
    by_count: dict[int, list[str]] = defaultdict(list)
    for host_id, count in counts.items():
        by_count[count].append(host_id)
    return by_count


def _matched(seats: Seats, offers: Mapping[tuple[int, ...], dict[int, list[str]]]) -> Seats:
    hosts = {host.host_id: host for host, _ in seats}
    in_order = sorted(ranks for _, ranks in seats)
    taken: dict[tuple[int, ...], str] = {}
    free = dict.fromkeys(sorted(hosts))
    for count in sorted({count for some in offers.values() for count in some}, reverse=True):
        for ranks in in_order:
            if ranks in taken:
                continue
            best = min((one for one in offers[ranks].get(count, ()) if one in free), default=None)
            if best is not None:
                taken[ranks] = best
                del free[best]
    left = iter(free)
    return [(hosts[taken.get(ranks) or next(left)], ranks) for ranks in in_order]
