"""What each host is told at a start: its own part of the placement and of the restore plan.

All of both, to each of 2,048 hosts, would be hundreds of megabytes and half a minute of work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everstep.controller.state import Job
from everstep.core.placement import HostPlacement, Placement
from everstep.wire.v1 import common_pb2
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.checkpoints_pb2 import RestoreSources


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """Ranks by the kind of source that they try first."""

    own_memory: int
    peer_memory: int
    object_store: int


def sources_by_host(placement: Placement, sources: RestoreSources) -> dict[str, RestoreSources]:
    """Give every host of the placement the sources of its ranks, in the plan's order."""
    parts = {
        host.host_id: RestoreSources(shards_generation=sources.shards_generation)
        for host in placement.hosts
    }
    if not sources.holders and not sources.shards:
        return parts  # a start from the beginning
    homes = {rank: host.host_id for host in placement.hosts for rank in host.ranks}
    for holder in sources.holders:
        own, replicas = _by_home(holder.own, homes), _by_home(holder.replicas, homes)
        for host_id in {**own, **replicas}:
            parts[host_id].holders.add(
                host_id=holder.host_id,
                address=holder.address,
                peer_port=holder.peer_port,
                generation=holder.generation,
                own=own.get(host_id, ()),
                replicas=replicas.get(host_id, ()),
            )
    for shard in sources.shards:
        if shard.rank in homes:
            parts[homes[shard.rank]].shards.append(shard)
    return parts


def source_counts(placement: Placement, sources: RestoreSources) -> SourceCounts:
    """Count ranks by their preferred source.

    The registry plans without knowing the new placement; a rank's own snapshot that lies on
    another host than the rank's new one is a peer's from there.
    """
    if not sources.holders and not sources.shards:
        return SourceCounts(own_memory=0, peer_memory=0, object_store=0)
    seats = {host.host_id: frozenset(host.ranks) for host in placement.hosts}
    ranks = frozenset().union(*seats.values())
    own: set[int] = set()
    in_memory: set[int] = set()
    for holder in sources.holders:
        first = set(holder.own) - in_memory  # the holder that these ranks ask before others
        own |= first & seats.get(holder.host_id, frozenset())
        in_memory |= first
    in_memory.update(*(holder.replicas for holder in sources.holders))
    stored = {shard.rank for shard in sources.shards} - in_memory
    return SourceCounts(
        own_memory=len(own),
        peer_memory=len((ranks & in_memory) - own),
        object_store=len(ranks & stored),
    )


def start_commands(job: Job, sources: Mapping[str, RestoreSources]) -> dict[str, StartRanks]:
    """Write the start command of every host in ``sources``."""
    assert job.placement is not None
    assert job.restore_step is not None
    seats = {host.host_id: _seat(host) for host in job.placement.hosts}
    kept: dict[str, list[int]] = defaultdict(list)
    for host in job.placement.hosts:
        kept[host.replica_host_id] += host.ranks
    layout = common_pb2.Layout(
        pp=job.placement.layout.pp,
        dp_replicate=job.placement.layout.dp_replicate,
        dp_shard=job.placement.layout.dp_shard,
        tp=job.placement.layout.tp,
    )
    return {
        host.host_id: StartRanks(
            job_id=job.job_id,
            generation=job.generation,
            spec_json=job.spec_json,
            rendezvous_address=job.rendezvous_address,
            rendezvous_port=job.rendezvous_port,
            restore_step=job.restore_step,
            sources=sources[host.host_id],
            layout=layout,
            host_index=index,
            host_count=len(seats),
            host=seats[host.host_id],
            peer=seats.get(host.replica_host_id),
            replicas=kept.get(host.host_id, ()),
        )
        for index, host in enumerate(job.placement.hosts)
        if host.host_id in sources
    }


def _by_home(ranks: Iterable[int], homes: Mapping[int, str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank in ranks:
        if rank in homes:
            found.setdefault(homes[rank], []).append(rank)
    return found


def _seat(host: HostPlacement) -> common_pb2.HostPlacement:
    return common_pb2.HostPlacement(
        host_id=host.host_id,
        address=host.address,
        peer_port=host.peer_port,
        ranks=host.ranks,
        replica_host_id=host.replica_host_id,
    )
