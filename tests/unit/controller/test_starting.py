"""Each host is told its own part of the placement and of the plan."""

from __future__ import annotations

import json
from dataclasses import replace

from everstep.controller.starting import (
    SourceCounts,
    source_counts,
    sources_by_host,
    start_commands,
)
from everstep.controller.state import Job
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.record import changed
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.checkpoints_pb2 import Holder, RestoreSources, Shard
from everstep.wire.v1.common_pb2 import HostPlacement as Seat
from everstep.wire.v1.common_pb2 import Layout as WireLayout

HOSTS = tuple(
    HostPlacement(
        host_id=host_id,
        address=f"{host_id}.net",
        peer_port=7000,
        ranks=ranks,
        replica_host_id=peer,
    )
    for host_id, ranks, peer in (("a", (0, 1), "b"), ("b", (2, 3), "c"), ("c", (4, 5), "a"))
)
SPEC = json.dumps({"name": "j", "entry": "a:b", "layout": {"dp_shard": 6}, "steps": 10})
PLACEMENT = Placement(layout=Layout(dp_shard=6), hosts=HOSTS)
JOB = Job(
    job_id="job",
    generation=3,
    spec_json=SPEC,
    placement=PLACEMENT,
    restore_step=7,
    rendezvous_address="a.net",
    rendezvous_port=20_000,
)
# Rank 3 ran on host a before; rank 1 is on no host's list; of rank 5 there is only the object.
SOURCES = RestoreSources(
    holders=[
        Holder(host_id="a", address="a.net", peer_port=7000, generation=2, own=[0, 3]),
        Holder(host_id="b", generation=2, own=[2], replicas=[0, 4]),
    ],
    shards=[Shard(rank=4, uri="four"), Shard(rank=5, uri="five")],
    shards_generation=1,
)


def test_every_host_gets_the_sources_of_its_ranks():
    """In the plan's order, and nothing of other hosts' ranks."""
    a, b = SOURCES.holders
    four, five = SOURCES.shards
    assert sources_by_host(PLACEMENT, SOURCES) == {
        "a": RestoreSources(
            holders=[with_ranks(a, own=[0]), with_ranks(b, replicas=[0])], shards_generation=1
        ),
        "b": RestoreSources(
            holders=[with_ranks(a, own=[3]), with_ranks(b, own=[2])], shards_generation=1
        ),
        "c": RestoreSources(
            holders=[with_ranks(b, replicas=[4])], shards=[four, five], shards_generation=1
        ),
    }


def test_start_from_the_beginning_names_no_sources():
    """To any host; of which generation's checkpoint they would be is said all the same."""
    nothing = RestoreSources(shards_generation=4)
    assert sources_by_host(PLACEMENT, nothing) == dict.fromkeys(("a", "b", "c"), nothing)


def test_sources_are_counted_as_the_new_placement_sees_them():
    """An own snapshot on another host counts as a peer's; memory counts before objects."""
    assert source_counts(PLACEMENT, SOURCES) == SourceCounts(
        own_memory=2, peer_memory=2, object_store=1
    )
    assert source_counts(PLACEMENT, RestoreSources()) == SourceCounts(
        own_memory=0, peer_memory=0, object_store=0
    )


def test_start_says_where_a_host_stands():
    """Itself, who keeps its copies, whose copies it keeps, and its place among the hosts."""
    commands = start_commands(JOB, {"a": SOURCES, "b": RestoreSources()})
    assert set(commands) == {"a", "b"}
    assert commands["b"] == StartRanks(
        job_id="job",
        generation=3,
        spec_json=SPEC,
        rendezvous_address="a.net",
        rendezvous_port=20_000,
        restore_step=7,
        sources=RestoreSources(),
        layout=WireLayout(pp=1, dp_replicate=1, dp_shard=6, tp=1),
        host_index=1,
        host_count=3,
        host=seat("b", [2, 3], "c"),
        peer=seat("c", [4, 5], "a"),
        replicas=[0, 1],
    )
    assert commands["a"].sources == SOURCES


def test_start_of_a_host_without_a_peer_names_none():
    """A host that is alone keeps nobody's copies, and nobody keeps its."""
    alone = Placement(layout=Layout(dp_shard=2), hosts=(changed(HOSTS[0], replica_host_id=""),))
    command = start_commands(replace(JOB, placement=alone), {"a": RestoreSources()})["a"]
    assert (command.HasField("peer"), list(command.replicas)) == (False, [])


def with_ranks(holder: Holder, *, own=(), replicas=()) -> Holder:
    """The holder with other ranks."""
    return Holder(
        host_id=holder.host_id,
        address=holder.address,
        peer_port=holder.peer_port,
        generation=holder.generation,
        own=own,
        replicas=replicas,
    )


def seat(host_id: str, ranks: list[int], peer: str) -> Seat:
    """A host as the wire has it."""
    return Seat(
        host_id=host_id,
        address=f"{host_id}.net",
        peer_port=7000,
        ranks=ranks,
        replica_host_id=peer,
    )
