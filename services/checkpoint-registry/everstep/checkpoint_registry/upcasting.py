"""Rewrites stored events of older versions; see ``codec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_holder(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rewrite ``restore_laid_out.v1``, which listed each rank's sources in memory by preference.

    ``2 * i`` was the rank's own snapshot on ``holders[i]`` and ``2 * i + 1`` a replica there.
    """
    ranks: dict[int, list[int]] = {}
    for rank, sources in enumerate(plan["memory"]):
        for source in sources:
            ranks.setdefault(source, []).append(rank)
    holders = [
        {**holder, "own": ranks.get(2 * i, []), "replicas": ranks.get(2 * i + 1, [])}
        for i, holder in enumerate(plan["holders"])
        if 2 * i in ranks or 2 * i + 1 in ranks
    ]
    # Version 1 ordered each rank's sources so, by hand; version 2 keeps the holders in that order.
    holders.sort(key=lambda holder: -holder["generation"])
    return {**{k: v for k, v in plan.items() if k != "memory"}, "holders": holders}


def of_hosts(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rewrite ``shards_stored.v1``, which was of one host's report."""
    rest = {key: value for key, value in stored.items() if key != "host_id"}
    return {**rest, "hosts": [stored["host_id"]]}
