"""Reads commands into this host's own words.

By hand and not by ``wire.codec``: a start names every host of the placement, and of 2,048 this one
needs itself, its peer, and those whose copies it keeps.
"""

from __future__ import annotations

from everstep.agent.runs import Peer, RankRestore, Source, SourceKind, Start
from everstep.core.errors import InvalidInput
from everstep.core.ids import is_valid_id
from everstep.core.spec import parse_spec_json
from everstep.wire.v1 import common_pb2
from everstep.wire.v1.agents_pb2 import StartRanks


def decode_start(command: StartRanks, host_id: str) -> Start:
    """Return this host's part of a start.

    Raises:
        InvalidInput: the job id or spec is wrong, or the host is not in the placement.
    """
    if not is_valid_id(command.job_id):
        raise InvalidInput(f"{command.job_id!r} is not a job id")
    parse_spec_json(command.spec_json)
    hosts = command.placement.hosts
    index = next((i for i, one in enumerate(hosts) if one.host_id == host_id), None)
    if index is None:
        raise InvalidInput(f"host {host_id} is not in the placement of job {command.job_id}")
    mine = hosts[index]
    peers = {one.host_id: one for one in hosts if one.host_id == mine.replica_host_id}
    peer = peers.get(mine.replica_host_id)
    if mine.replica_host_id and peer is None:
        raise InvalidInput(f"replica host {mine.replica_host_id} is not in the placement")
    layout = command.placement.layout
    return Start(
        job_id=command.job_id,
        generation=command.generation,
        spec_json=command.spec_json,
        rendezvous_address=command.rendezvous_address,
        rendezvous_port=command.rendezvous_port,
        restore_step=command.restore_step,
        world_size=layout.pp * layout.dp_replicate * layout.dp_shard * layout.tp,
        host_index=index,
        host_count=len(hosts),
        ranks=tuple(mine.ranks),
        peer=None
        if peer is None
        else Peer(host_id=peer.host_id, address=peer.address, peer_port=peer.peer_port),
        replicas=tuple(
            rank for one in hosts if one.replica_host_id == host_id for rank in one.ranks
        ),
        restores=tuple(decode_restore(one) for one in command.restores),
    )


def decode_restore(restore: common_pb2.RankRestore) -> RankRestore:
    """Return a rank's sources; kinds that this version does not know are left out."""
    return RankRestore(
        rank=restore.rank,
        sources=tuple(
            Source(
                kind=SourceKind(common_pb2.SourceKind.Name(one.kind)),
                host_id=one.host_id,
                address=one.address,
                peer_port=one.peer_port,
                uri=one.uri,
                checksum=one.checksum,
                bytes=one.bytes,
                generation=one.generation,
            )
            for one in restore.sources
            if one.kind in {common_pb2.OWN_MEMORY, common_pb2.PEER_MEMORY, common_pb2.OBJECT_STORE}
        ),
    )
