"""What this host takes from a start, and what its ranks find in their environment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from everstep.agent.codec import decode_sources, decode_start, held_messages
from everstep.agent.environment import rank_environment
from everstep.agent.runs import Peer, RankRestore, Source, SourceKind
from everstep.agent.store import Held
from everstep.core.corrections import BatchSpan, Corrections
from everstep.core.errors import InvalidInput
from everstep.core.rank_variables import OURS, TORCHRUN
from everstep.core.schedule import Schedule
from everstep.core.spec import parse_spec_json
from everstep.memory.slot import Preamble
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.checkpoints_pb2 import Holder, RestoreSources, Shard
from everstep.wire.v1.common_pb2 import HostPlacement, Layout

SPEC = json.dumps(
    {
        "name": "n",
        "entry": "m:f",
        "layout": {"pp": 2, "tp": 2},
        "steps": 9,
        "env": {"MINE": "1"},
    }
)


def command(**fields):
    """The start of host b; it and host a keep each other's copies."""
    return StartRanks(
        **{
            "job_id": "job",
            "generation": 4,
            "spec_json": SPEC,
            "rendezvous_address": "10.0.0.1",
            "rendezvous_port": 29_000,
            "restore_step": 12,
            "layout": Layout(pp=2, dp_replicate=1, dp_shard=1, tp=2),
            "host_index": 1,
            "host_count": 2,
            "host": HostPlacement(
                host_id="b", address="10.0.0.2", peer_port=72, ranks=[2, 3], replica_host_id="a"
            ),
            "peer": HostPlacement(
                host_id="a", address="10.0.0.1", peer_port=71, ranks=[0, 1], replica_host_id="b"
            ),
            "replicas": [0, 1],
            **fields,
        }
    )


def holding(rank, step, *, own):
    """A snapshot of generation 3 in this host's memory."""
    preamble = Preamble(
        valid=True, step=step, generation=3, payload_bytes=0, header_bytes=0, header_checksum=0
    )
    return Held(rank=rank, own=own, slot=0, path=Path("/dev/shm/x"), preamble=preamble)


def environment(start, rank, **options):
    """The variables of a rank on host b."""
    return rank_environment(
        start=start,
        spec=parse_spec_json(start.spec_json),
        host_id="b",
        rank=rank,
        agent_socket=Path("/run/agent.sock"),
        memory_dir=Path("/dev/shm/x"),
        **{"interface": "", "emulated": False, "seek_position": -1, **options},
    )


def test_start_says_where_this_host_stands():
    """Its ranks, its peer, the ranks whose copies it keeps, and its index."""
    start = decode_start(command(), "b")
    assert (start.ranks, start.replicas) == ((2, 3), (0, 1))
    assert start.peer == Peer(host_id="a", address="10.0.0.1", peer_port=71)
    assert (start.world_size, start.host_index, start.host_count) == (4, 1, 2)
    assert start.restore_of(2) == RankRestore(rank=2)


@pytest.mark.parametrize(
    ("fields", "host", "message"),
    [
        ({}, "c", "host c was sent the start of host 'b'"),
        ({"job_id": "../x"}, "b", "is not a job id"),
        ({"spec_json": "{}"}, "b", "invalid job spec"),
    ],
)
def test_start_that_makes_no_sense_is_refused(fields, host, message):
    """The answer says what is wrong."""
    with pytest.raises(InvalidInput, match=message):
        decode_start(command(**fields), host)


@pytest.mark.parametrize("fields", [{"peer": None}, {"peer": HostPlacement(host_id="z")}])
def test_peer_of_which_no_address_is_known_is_refused(fields):
    """Copies cannot be sent there."""
    with pytest.raises(InvalidInput, match="copies go to host 'a'"):
        decode_start(command(**fields), "b")


def test_sources_are_tried_own_memory_first_then_replicas_then_the_object():
    """Each kind in the order of the holders; ranks that share a holder share its source."""
    sources = RestoreSources(
        holders=[
            Holder(host_id="a", address="10.0.0.1", peer_port=71, generation=3, replicas=[2, 3]),
            Holder(host_id="b", address="10.0.0.2", peer_port=72, generation=2, own=[2]),
        ],
        shards=[Shard(rank=3, uri="u", checksum="c", bytes=5)],
        shards_generation=1,
    )
    copied = Source(
        kind=SourceKind.PEER_MEMORY,
        host_id="a",
        address="10.0.0.1",
        peer_port=71,
        generation=3,
    )
    mine = Source(
        kind=SourceKind.OWN_MEMORY, host_id="b", address="10.0.0.2", peer_port=72, generation=2
    )
    stored = Source(kind=SourceKind.OBJECT_STORE, uri="u", checksum="c", bytes=5, generation=1)
    assert decode_sources(sources, "b") == (
        RankRestore(rank=2, sources=(mine, copied)),
        RankRestore(rank=3, sources=(copied, stored)),
    )


def test_own_snapshot_on_another_host_is_a_peers_and_stays_the_first_choice():
    """The rank has moved; it asks the host that it ran on before any that keeps its copy."""
    sources = RestoreSources(
        holders=[Holder(host_id="c", replicas=[2]), Holder(host_id="a", own=[2])]
    )
    (restore,) = decode_sources(sources, "b")
    assert [(one.kind, one.host_id) for one in restore.sources] == [
        (SourceKind.PEER_MEMORY, "a"),
        (SourceKind.PEER_MEMORY, "c"),
    ]


def test_holdings_are_told_by_step_generation_and_owner():
    """Own snapshots first, older steps before newer, ranks sorted."""
    held = [
        holding(rank, step, own=own) for own in (False, True) for rank in (1, 0) for step in (8, 7)
    ]
    assert [(one.own, one.step, list(one.ranks)) for one in held_messages(held)] == [
        (True, 7, [0, 1]),
        (True, 8, [0, 1]),
        (False, 7, [0, 1]),
        (False, 8, [0, 1]),
    ]
    assert {one.generation for one in held_messages(held)} == {3}


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


def test_what_the_launcher_sets_is_what_no_job_may_set():
    """But for defaults, which a job may replace."""
    told = {"schedule": Schedule(), "corrections": Corrections(batches=(BatchSpan(
        after_step=1, samples=2),))}  # fmt: skip
    start = replace(decode_start(command(), "b"), **told)
    found = environment(start, 3, interface="lo", emulated=True, seek_position=7)
    defaults = {
        "CUBLAS_WORKSPACE_CONFIG", "GLOO_SOCKET_IFNAME", "NCCL_HOSTID", "NCCL_SOCKET_IFNAME",
        "OMP_NUM_THREADS",
    }  # fmt: skip
    assert found.keys() - defaults - {"MINE"} == TORCHRUN | OURS


def test_interface_and_seek_are_passed_on_when_given():
    """What the host and the control plane ask for reaches the rank."""
    found = environment(decode_start(command(), "b"), 2, interface="lo", seek_position=7)
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("lo", "lo")
    assert found["EVERSTEP_SEEK_POSITION"] == "7"


def test_emulated_hosts_ranks_may_share_an_accelerator():
    """NCCL refuses two ranks of one host on one device, so each is a host of its own to it."""
    start = decode_start(command(), "b")
    ids = {environment(start, rank, emulated=True)["NCCL_HOSTID"] for rank in (2, 3)}
    assert len(ids) == 2
    assert "NCCL_HOSTID" not in environment(start, 2)


def test_libraries_are_told_to_repeat_themselves_unless_the_job_does_not_want_it():
    """Its workspace setting is read once, by cuBLAS; a job that sets its own keeps it."""
    spec = {"name": "x", "entry": "m:f", "layout": {"tp": 2, "dp_shard": 2}, "steps": 3}
    found = [
        environment(decode_start(command(spec_json=json.dumps({**spec, **change})), "b"), 2)
        for change in ({}, {"deterministic": False}, {"env": {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}})
    ]
    assert [one.get("CUBLAS_WORKSPACE_CONFIG") for one in found] == [":4096:8", None, ":16:8"]
