"""What this host takes from a start, and what its ranks find in their environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everstep.agent.codec import decode_restore, decode_start
from everstep.agent.environment import rank_environment
from everstep.agent.runs import Peer, RankRestore, Source, SourceKind
from everstep.core.errors import InvalidInput
from everstep.core.spec import parse_spec_json
from everstep.wire.v1 import common_pb2
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.common_pb2 import HostPlacement, Layout, Placement, RestoreSource

SPEC = json.dumps(
    {
        "name": "n",
        "entry": "m:f",
        "layout": {"pp": 2, "tp": 2},
        "steps": 9,
        "env": {"MINE": "1", "RANK": "99"},
    }
)


def command(**fields):
    """A start of two hosts that keep each other's copies."""
    hosts = [
        HostPlacement(
            host_id="a", address="10.0.0.1", peer_port=71, ranks=[0, 1], replica_host_id="b"
        ),
        HostPlacement(
            host_id="b", address="10.0.0.2", peer_port=72, ranks=[2, 3], replica_host_id="a"
        ),
    ]
    return StartRanks(
        **{
            "job_id": "job",
            "generation": 4,
            "spec_json": SPEC,
            "placement": Placement(
                layout=Layout(pp=2, dp_replicate=1, dp_shard=1, tp=2), hosts=hosts
            ),
            "rendezvous_address": "10.0.0.1",
            "rendezvous_port": 29_000,
            "restore_step": 12,
            **fields,
        }
    )


def environment(start, rank, **options):
    """The variables of a rank on host b."""
    return rank_environment(
        start=start,
        spec=parse_spec_json(start.spec_json),
        host_id="b",
        rank=rank,
        agent_socket=Path("/run/agent.sock"),
        memory_dir=Path("/dev/shm/x"),
        **{"interface": "", "seek_position": -1, **options},
    )


def test_start_is_cut_down_to_this_host():
    """Of the placement only this host, its peer and the ranks whose copies it keeps remain."""
    start = decode_start(command(), "b")
    assert (start.ranks, start.replicas) == ((2, 3), (0, 1))
    assert start.peer == Peer(host_id="a", address="10.0.0.1", peer_port=71)
    assert (start.world_size, start.host_index, start.host_count) == (4, 1, 2)
    assert start.restore_of(2) == RankRestore(rank=2)


@pytest.mark.parametrize(
    ("fields", "host", "message"),
    [
        ({}, "c", "host c is not in the placement"),
        ({"job_id": "../x"}, "b", "is not a job id"),
        ({"spec_json": "{}"}, "b", "invalid job spec"),
    ],
)
def test_start_that_makes_no_sense_is_refused(fields, host, message):
    """The answer says what is wrong."""
    with pytest.raises(InvalidInput, match=message):
        decode_start(command(**fields), host)


def test_peer_outside_the_placement_is_refused():
    """Copies cannot be sent to a host of which no address is known."""
    wrong = command()
    wrong.placement.hosts[1].replica_host_id = "z"
    with pytest.raises(InvalidInput, match="replica host z"):
        decode_start(wrong, "b")


def test_sources_keep_their_order_and_unknown_kinds_are_left_out():
    """A source that a newer registry may name is passed over, not guessed at."""
    restore = common_pb2.RankRestore(
        rank=3,
        sources=[
            RestoreSource(kind=common_pb2.OBJECT_STORE, uri="u", checksum="c", bytes=5),
            RestoreSource(kind=17),
            RestoreSource(kind=common_pb2.OWN_MEMORY, host_id="b"),
        ],
    )
    assert decode_restore(restore).sources == (
        Source(kind=SourceKind.OBJECT_STORE, uri="u", checksum="c", bytes=5),
        Source(kind=SourceKind.OWN_MEMORY, host_id="b"),
    )


def test_rank_finds_torchruns_variables():
    """A script made for torchrun finds what torchrun would have set."""
    found = environment(decode_start(command(), "b"), 3)
    torchrun = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29000",
        "OMP_NUM_THREADS": "1",
    }
    assert {name: found[name] for name in torchrun} == torchrun
    assert found["MINE"] == "1"
    assert found["EVERSTEP_GENERATION"] == "4"
    assert "GLOO_SOCKET_IFNAME" not in found
    assert "EVERSTEP_SEEK_POSITION" not in found


def test_interface_and_seek_are_passed_on_when_given():
    """What the host and the control plane ask for reaches the rank."""
    found = environment(decode_start(command(), "b"), 2, interface="lo", seek_position=7)
    assert (found["GLOO_SOCKET_IFNAME"], found["EVERSTEP_SEEK_POSITION"]) == ("lo", "7")
