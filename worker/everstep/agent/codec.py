"""Reads commands into this host's own words, and writes what its memory holds."""

from __future__ import annotations

from collections.abc import Iterable

from everstep.agent.runs import Peer, RankRestore, Source, SourceKind, Start
from everstep.agent.store import Held
from everstep.core.corrections import Corrections
from everstep.core.errors import InvalidInput
from everstep.core.ids import is_valid_id
from everstep.core.placement import Layout
from everstep.core.schedule import Schedule
from everstep.core.spec import parse_spec_json
from everstep.wire.codec import from_wire
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.checkpoints_pb2 import RestoreSources
from everstep.wire.v1.common_pb2 import HeldSnapshots
from everstep.wire.v1.common_pb2 import Schedule as WireSchedule


def decode_start(command: StartRanks, host_id: str) -> Start:
    """Return a start of this host.

    Raises:
        InvalidInput: the job id or spec is wrong, or the start is another host's.
    """
    if not is_valid_id(command.job_id):
        raise InvalidInput(f"{command.job_id!r} is not a job id")
    parse_spec_json(command.spec_json)
    mine, peer, layout = command.host, command.peer, command.layout
    if mine.host_id != host_id:
        raise InvalidInput(
            f"host {host_id} was sent the start of host {mine.host_id!r} of job {command.job_id}"
        )
    if mine.replica_host_id != peer.host_id:
        raise InvalidInput(
            f"copies go to host {mine.replica_host_id!r}, and where to reach "
            f"{peer.host_id!r} is said"
        )
    return Start(
        job_id=command.job_id,
        generation=command.generation,
        spec_json=command.spec_json,
        rendezvous_address=command.rendezvous_address,
        rendezvous_port=command.rendezvous_port,
        restore_step=command.restore_step,
        world_size=layout.pp * layout.dp_replicate * layout.dp_shard * layout.tp,
        host_index=command.host_index,
        host_count=command.host_count,
        ranks=tuple(mine.ranks),
        peer=Peer(host_id=peer.host_id, address=peer.address, peer_port=peer.peer_port)
        if peer.host_id
        else None,
        replicas=tuple(command.replicas),
        restores=decode_sources(command.sources, host_id),
        layout=from_wire(layout, Layout),
        old_layout=from_wire(command.sources.old_layout, Layout)
        if command.sources.HasField("old_layout")
        else None,
        lost=tuple(command.sources.lost),
        restore_job_id=command.sources.of_job_id,
        schedule=decode_schedule(command.schedule) if command.HasField("schedule") else None,
        corrections=from_wire(command.corrections, Corrections),
    )


def decode_schedule(schedule: WireSchedule) -> Schedule:
    """Return a schedule. Raises InvalidInput."""
    if schedule.memory_every_steps < 1 or schedule.object_every_steps < 0:
        raise InvalidInput(
            f"schedule {schedule.version}: expected memory_every_steps of at least 1 and "
            f"object_every_steps of at least 0, got {schedule.memory_every_steps} and "
            f"{schedule.object_every_steps}"
        )
    return from_wire(schedule, Schedule)


def decode_sources(sources: RestoreSources, host_id: str) -> tuple[RankRestore, ...]:
    """Return each rank's sources in order of preference, by rank.

    A rank's own snapshot that lies on another host than this one is loaded from there as from a
    peer.
    """
    found: dict[int, list[Source]] = {}
    for kind in (SourceKind.OWN_MEMORY, SourceKind.PEER_MEMORY):
        own = kind is SourceKind.OWN_MEMORY
        for holder in sources.holders:
            here = own and holder.host_id == host_id
            source = Source(
                kind=SourceKind.OWN_MEMORY if here else SourceKind.PEER_MEMORY,
                host_id=holder.host_id,
                address=holder.address,
                peer_port=holder.peer_port,
                generation=holder.generation,
            )
            for rank in holder.own if own else holder.replicas:
                found.setdefault(rank, []).append(source)
    for shard in sources.shards:
        stored = Source(
            kind=SourceKind.OBJECT_STORE,
            uri=shard.uri,
            checksum=shard.checksum,
            bytes=shard.bytes,
            generation=sources.shards_generation,
        )
        found.setdefault(shard.rank, []).append(stored)
    return tuple(RankRestore(rank=rank, sources=tuple(found[rank])) for rank in sorted(found))


def held_messages(held: Iterable[Held]) -> list[HeldSnapshots]:
    """Say what lies in memory, grouped: own snapshots before replicas, older steps before newer."""
    groups: dict[tuple[bool, int, int], set[int]] = {}
    for one in held:
        key = (not one.own, one.step, one.preamble.generation)
        groups.setdefault(key, set()).add(one.rank)
    return [
        HeldSnapshots(step=step, generation=generation, own=not copied, ranks=sorted(ranks))
        for (copied, step, generation), ranks in sorted(groups.items())
    ]
