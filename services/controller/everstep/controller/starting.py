"""What each host is told at a start: its own part of the placement and of the restore plan.

All of both, to each of 2,048 hosts, would be hundreds of megabytes and half a minute of work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.controller.correcting import corrections_of
from everstep.controller.state import Job
from everstep.core.corrections import NO_CORRECTIONS
from everstep.core.elastic import spec_under
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.resharding import Sources
from everstep.core.spec import JobSpec, parse_spec_json
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import common_pb2
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.checkpoints_pb2 import (
    HostHoldings,
    PlanAudit,
    PlanRestore,
    RestoreSources,
    Shard,
)

NOBODY: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCounts:
    """Ranks by the kind of source that they try first."""

    own_memory: int
    peer_memory: int
    object_store: int


def plan_command(
    job: Job, holdings: Sequence[HostHoldings], from_step: int, at_ms: int
) -> PlanRestore | PlanAudit:
    """Return what the registry is asked about where a placed job's ranks load from."""
    assert job.placement is not None
    spec, layout = parse_spec_json(job.spec_json), job.placement.layout
    if spec.audit is not None:
        theirs = Layout(**spec.layout.model_dump())
        return PlanAudit(
            job_id=spec.audit.job_id,
            step=spec.audit.step,
            replica=spec.audit.replica,
            layout=to_wire(theirs, common_pb2.Layout()),
        )
    return PlanRestore(
        job_id=job.job_id,
        generation=job.generation,
        world_size=layout.world_size,
        layout=to_wire(layout, common_pb2.Layout()),
        holdings=holdings,
        from_step=from_step,
        before_step=job.before_step,
        at_ms=at_ms,
    )


def turn_of(spec: JobSpec) -> int:
    """Return how often the same work was placed before, as far as it matters.

    An audit that is not the first one of its step and replica is to have other hosts than that,
    however many have been asked for in between and had none.
    """
    return 1 if spec.audit is not None and spec.audit.number > 1 else 0


def sources_by_host(placement: Placement, sources: RestoreSources) -> dict[str, RestoreSources]:
    """Give every host of the placement the sources of its ranks, in the plan's order."""
    if not sources.holders and not sources.shards:  # a start from the beginning
        nothing = RestoreSources(shards_generation=sources.shards_generation)
        return dict.fromkeys(placement.host_ids, nothing)
    parts = {
        host.host_id: RestoreSources(shards_generation=sources.shards_generation)
        for host in placement.hosts
    }
    homes = _homes(placement, sources)
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
    shards: dict[str, list[Shard]] = defaultdict(list)
    for shard in sources.shards:
        for host_id in homes.get(shard.rank, ()):
            shards[host_id].append(shard)
    for host_id, some in shards.items():  # at once: one by one takes twice as long
        parts[host_id].shards.extend(some)
    if sources.HasField("old_layout"):
        for part in parts.values():
            part.old_layout.CopyFrom(sources.old_layout)
            part.lost.extend(sources.lost)
            part.of_job_id = sources.of_job_id
    return parts


def source_counts(placement: Placement, sources: RestoreSources) -> SourceCounts:
    """Count ranks by their preferred source.

    The registry plans without knowing the new placement; a rank's own snapshot that lies on
    another host than the rank's new one is a peer's from there. A rank that is put together from
    several old ones' is counted by the slowest kind among them.
    """
    if not sources.holders and not sources.shards:
        return SourceCounts(own_memory=0, peer_memory=0, object_store=0)
    if sources.HasField("old_layout"):
        return _counts_across(placement, sources)
    ranks = frozenset[int]().union(*[host.ranks for host in placement.hosts])
    own: set[int] = set()
    in_memory: set[int] = set()
    for holder in sources.holders:
        first = set(holder.own) - in_memory  # the holder that these ranks ask before others
        seat = placement.seats.get(holder.host_id)
        own |= first.intersection(seat.ranks if seat is not None else ())
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
    # What the ranks are told is the spec of what they are: their layout is that of the placement.
    spec = parse_spec_json(job.spec_json)
    told = spec_under(spec, job.placement.layout)
    spec_json = job.spec_json if told is spec else told.model_dump_json()
    changes = corrections_of(job)
    corrections = to_wire(changes, common_pb2.Corrections()) if changes != NO_CORRECTIONS else None
    version = job.interval.schedule.version
    schedule = to_wire(job.interval.schedule, common_pb2.Schedule()) if version else None
    return {
        host.host_id: StartRanks(
            job_id=job.job_id,
            generation=job.generation,
            spec_json=spec_json,
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
            schedule=schedule,
            corrections=corrections,
        )
        for index, host in enumerate(job.placement.hosts)
        if host.host_id in sources
    }


def _homes(placement: Placement, sources: RestoreSources) -> Mapping[int, Sequence[str]]:
    """Return the hosts that need what is there of a rank, of the old layout if it has changed."""
    if not sources.HasField("old_layout"):
        return {rank: (host.host_id,) for host in placement.hosts for rank in host.ranks}
    across = _across(placement, sources)
    homes: dict[int, list[str]] = {}
    for host in placement.hosts:
        for rank in sorted({old for new in host.ranks for old in across.of(new)}):
            homes.setdefault(rank, []).append(host.host_id)
    return homes


def _across(placement: Placement, sources: RestoreSources) -> Sources:
    old = from_wire(sources.old_layout, Layout)
    return Sources(old, placement.layout, lost=sources.lost)


def _counts_across(placement: Placement, sources: RestoreSources) -> SourceCounts:
    here: dict[str, frozenset[int]] = {}
    for one in sources.holders:  # a host may be named once for each generation that wrote there
        here[one.host_id] = here.get(one.host_id, NOBODY).union(one.own, one.replicas)
    in_memory = frozenset().union(*here.values())
    across = _across(placement, sources)
    own = peer = 0
    for host in placement.hosts:
        mine = here.get(host.host_id, NOBODY)
        for rank in host.ranks:
            needed = frozenset(across.of(rank))
            own += needed <= mine
            peer += needed <= in_memory and not needed <= mine
    stored = placement.layout.world_size - own - peer
    return SourceCounts(own_memory=own, peer_memory=peer, object_store=stored)


def _by_home(ranks: Iterable[int], homes: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank in ranks:
        for host_id in homes.get(rank, ()):
            found.setdefault(host_id, []).append(rank)
    return found


def _seat(host: HostPlacement) -> common_pb2.HostPlacement:
    return common_pb2.HostPlacement(
        host_id=host.host_id,
        address=host.address,
        peer_port=host.peer_port,
        ranks=host.ranks,
        replica_host_id=host.replica_host_id,
    )
