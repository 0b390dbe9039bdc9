"""Hosts are matched by tensor-parallel group as they would be rank by rank."""

from __future__ import annotations

import random
from collections import defaultdict
from types import SimpleNamespace

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.core.resharding import sources_needed
from everstep.host_inventory.settling import settle

HOSTS = [SimpleNamespace(host_id=f"h{i:02}", pod="ab"[i % 2]) for i in range(64)]


def by_rank(seats, old, layout):
    """The same, counted for each rank alone: best first, then by ranks, then by host."""
    alike, settled = defaultdict(list), []
    for host, ranks in seats:
        alike[host.pod, len(ranks)].append((host, ranks))
    for some in alike.values():
        hosts, offers, taken = {host.host_id: host for host, _ in some}, [], {}
        for _, ranks in some:
            try:
                needed = {o for r in ranks for o in sources_needed(old.layout, layout, r)}
            except InvalidInput:
                needed = set()
            for name in hosts:
                held = [len(needed & set(s.ranks)) for s in old.hosts if s.host_id == name]
                held += [len(needed & set(s.ranks)) for s in old.hosts if s.replica_host_id == name]
                offers += [(-sum(held), ranks, name)] if sum(held) else []
        for _, ranks, name in sorted(offers):
            if ranks not in taken and name not in taken.values():
                taken[ranks] = name
        left = iter(sorted(set(hosts) - set(taken.values())))
        settled += [(hosts[taken.get(r) or next(left)], r) for r in sorted(r for _, r in some)]
    return sorted(settled, key=lambda seat: seat[1])


def seated(rng, layout):
    """Ranks in seats of one size, which need not be whole groups, on drawn hosts."""
    size = rng.choice([one for one in (1, 2, 4, 8) if layout.world_size % one == 0])
    ranks = [tuple(range(at, at + size)) for at in range(0, layout.world_size, size)]
    return list(zip(rng.sample(HOSTS[: len(ranks) + 2], len(ranks)), ranks, strict=True))


def test_groups_are_matched_as_their_ranks_would_be():
    """Whatever the layouts, also where a host has part of a group or several."""
    rng = random.Random(1)
    moved = 0
    for _ in range(300):
        tp, dp = rng.choice([1, 2, 4]), rng.choice([1, 2, 3, 4])
        was = Layout(pp=rng.choice([1, 2]), dp_replicate=rng.choice([1, 2]), dp_shard=dp, tp=tp)
        now_tp = tp if rng.random() < 0.8 else rng.choice([1, 2, 4])
        now_pp = was.pp if rng.random() < 0.8 else rng.choice([1, 2])
        now = Layout(pp=now_pp, dp_replicate=1, dp_shard=rng.choice([1, 2, 3, 4]), tp=now_tp)
        hosts = [
            SimpleNamespace(host_id=h.host_id, ranks=r, replica_host_id=rng.choice(HOSTS).host_id)
            for h, r in seated(rng, was)
        ]
        old, seats = SimpleNamespace(layout=was, hosts=hosts), seated(rng, now)
        settled = settle(list(seats), old, now)
        assert settled == by_rank(seats, old, now)
        moved += settled != seats
    assert moved > 50
