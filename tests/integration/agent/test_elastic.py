"""Ranks of another layout go on from old ranks' snapshots: real slots, agents and connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.agent import harness
from tests.integration.agent.harness import (
    RankRestore,
    own,
    peer,
    placed,
    sources_of,
    spec_json,
    start_all,
    start_command,
)
from tests.integration.agent.test_lifecycle import digest_after
from tests.integration.agent.test_restore import STEP, corrupt, run_and_fence, slot_of
from tests.waiting import until

from everstep.core.placement import Layout
from everstep.memory import layout
from everstep.wire.codec import to_wire
from everstep.wire.v1.agents_pb2 import (
    RANK_EXITED,
    RANK_READY,
    RESTORE_FAILED,
    START_FAILED,
)
from everstep.wire.v1.checkpoints_pb2 import RestoreSources
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.common_pb2 import Layout as WireLayout

TWO = Layout(dp_shard=2)
ENDLESS = spec_json(step_ms=5, patient=True)


def across(*restores: RankRestore, old: Layout = TWO, lost: tuple[int, ...] = ()) -> RestoreSources:
    """Sources of ranks of an old layout."""
    sources = sources_of(restores)
    sources.old_layout.CopyFrom(to_wire(old, WireLayout()))
    sources.lost.extend(lost)
    return sources


def by_generation(holder, generation):
    """The same holder, of snapshots that a generation wrote."""
    holder.generation = generation
    return holder


async def start_on(plane, host, generation, sources, *, spec=ENDLESS, step=STEP, ranks=1):
    """Start a layout that is as small as one host, of one rank or more."""
    placement = placed([host], ranks)
    command = start_command(
        placement,
        host.host_id,
        generation=generation,
        spec_json=spec,
        rendezvous_address="127.0.0.1",
        rendezvous_port=1,
        restore_step=step,
        sources=sources,
    )
    reply = await plane.ask(host.host_id, command, CommandReply)
    assert reply.outcome.accepted, reply.outcome


def old_dirs(host):
    """What a host has set aside of the job."""
    return layout.old_dirs(host.settings.memory_dir, harness.JOB)


async def test_rank_goes_on_from_an_old_rank_here_and_one_elsewhere(two):
    """One lies where it was, the other comes over TCP; both go when they are of no more use."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    sources = across(
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(rank=1, sources=[by_generation(peer(hosts[1]), 1)]),
    )
    spec = spec_json(steps=STEP + 20, patient=True)
    await start_on(plane, hosts[0], 2, sources, spec=spec)
    [ready] = await until(lambda: plane.reported(RANK_READY, 2))
    assert (ready.rank, ready.restored_step, ready.source_kind) == (0, STEP, "peer_memory")
    assert list(ready.restore_problems) == []
    await until(lambda: plane.reported(RANK_EXITED, 2))
    await until(lambda: old_dirs(hosts[0]) == [], what="old snapshots dropped")
    last = await until(lambda: plane.shards and plane.shards[-1])
    assert digest_after(STEP + 20) in await plane.objects.get(last.shards[0].uri)


async def test_old_ranks_snapshots_are_told_until_the_new_ones_are_safe(two):
    """A failure before that goes on from them, under any layout; here under the old one."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    sources = across(
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(rank=1, sources=[by_generation(peer(hosts[0]), 1)]),
    )
    held_back = spec_json(fail="hold", fail_at=STEP + 1)  # it makes no step
    await start_on(plane, hosts[0], 2, sources, spec=held_back)
    await until(lambda: plane.reported(RANK_READY, 2))
    reply = await plane.stop("h1", 3)
    told = {(rank, one.step, one.own, one.generation) for one in reply.held for rank in one.ranks}
    assert told >= {(0, STEP, True, 1), (1, STEP, False, 1)}
    assert {one.generation for one in reply.held} == {1}

    restores = [
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(rank=1, sources=[by_generation(peer(hosts[0]), 1)]),
    ]
    spec = spec_json(steps=STEP + 20, patient=True)
    await plane.stop("h2", 3)
    await start_all(plane, placed(hosts, 1), 3, spec, restore_step=STEP, restores=restores)
    ready = await until(lambda: len(got := plane.reported(RANK_READY, 3)) == 2 and got)
    assert {(one.rank, one.restored_step, one.source_kind) for one in ready} == {
        (0, STEP, "own_memory"),
        (1, STEP, "peer_memory"),
    }
    await until(lambda: len(plane.reported(RANK_EXITED, 3)) == 2)
    assert old_dirs(hosts[0]) == []


async def test_damaged_old_slot_is_named_and_the_next_source_used(two):
    """The report says whose it was, so that the registry can distrust that copy."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    corrupt(slot_of(hosts[0], 1, STEP, is_own=False))
    sources = across(
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(
            rank=1, sources=[by_generation(peer(host), 1) for host in (hosts[0], hosts[1])]
        ),
    )
    await start_on(plane, hosts[0], 2, sources)
    [ready] = await until(lambda: plane.reported(RANK_READY, 2))
    assert ready.restored_step == STEP
    [problem] = ready.restore_problems
    assert "moments: checksum expected" in problem
    assert "rank 1" in problem
    [refused] = ready.refused_sources
    assert (refused.rank, refused.host_id, refused.step) == (1, "h1", STEP)


async def test_damaged_old_slot_that_two_ranks_find_is_brought_again_once(two):
    """Both need it, and neither cuts off what the other has begun."""
    plane, hosts = two
    await start_all(plane, placed(hosts[:1], 1), 1, spec_json(steps=STEP, patient=True))
    report = await until(lambda: plane.shards and plane.shards[0])
    await plane.stop("h1", 2)
    corrupt(slot_of(hosts[0], 0, STEP))
    downloads = []
    run_of, chunks_of = hosts[0].agent.runs.get, plane.objects.chunks

    def both_told() -> bool:
        return all(rank.answer is None for rank in run_of(harness.JOB).ranks.values())

    async def slow(key, *, chunk_bytes):
        downloads.append(key)
        if len(downloads) == 1:
            await until(both_told, what="damage told by both ranks")
            await asyncio.sleep(0.2)  # a second restore would have begun by now
        async for chunk in chunks_of(key, chunk_bytes=chunk_bytes):
            yield chunk

    plane.objects.chunks = slow
    [shard] = report.shards
    old = RankRestore(rank=0, sources=[by_generation(own("h1"), 1), shard])
    sources = across(old, old=Layout())
    await start_on(plane, hosts[0], 2, sources, ranks=2)
    await until(lambda: len(plane.reported(RANK_READY) + plane.reported(START_FAILED)) == 3)
    assert plane.reported(START_FAILED) == []
    ready = plane.reported(RANK_READY, 2)
    assert {(one.rank, one.restored_step, one.source_kind) for one in ready} == {
        (0, STEP, "object_store"),
        (1, STEP, "object_store"),
    }
    assert downloads == [shard.uri]


async def test_old_rank_that_is_nowhere_fails_the_start(two):
    """It is told whose snapshot is missing."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    sources = across(
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(rank=1, sources=[by_generation(own("h1"), 1)]),
    )
    corrupt(slot_of(hosts[0], 1, STEP, is_own=False))
    await start_on(plane, hosts[0], 2, sources)
    [failed] = await until(lambda: plane.reported(START_FAILED, 2))
    assert failed.exit_class == RESTORE_FAILED
    assert any("rank 1" in problem for problem in failed.restore_problems)
    assert {refused.rank for refused in failed.refused_sources} == {1}


async def test_old_ranks_come_from_the_object_store(two):
    """Nothing of them is in anybody's memory."""
    plane, hosts = two
    await start_all(plane, placed(hosts, 1), 1, spec_json(steps=STEP))
    await until(lambda: len({s.rank for one in plane.shards for s in one.shards}) == 2)
    shards = {shard.rank: shard for one in plane.shards for shard in one.shards}
    for host in hosts:
        await plane.stop(host.host_id, 3, forget=True)
    sources = across(*(RankRestore(rank=rank, sources=[one]) for rank, one in shards.items()))
    await start_on(plane, hosts[0], 4, sources)
    [ready] = await until(lambda: plane.reported(RANK_READY, 4))
    assert (ready.restored_step, ready.source_kind) == (STEP, "object_store")


async def test_agent_that_comes_back_answers_with_the_same_old_slots(two):
    """It was told once what the rank goes on from; a new agent knows it still."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    sources = across(
        RankRestore(rank=0, sources=[by_generation(own("h1"), 1)]),
        RankRestore(rank=1, sources=[by_generation(peer(hosts[0]), 1)]),
    )
    await start_on(plane, hosts[0], 2, sources)
    await until(lambda: plane.reported(RANK_READY, 2))
    [record] = hosts[0].agent.runs.files.load()
    answer = record.ranks[0].answer
    assert answer.kind == "slots_ready"
    assert [(one.rank, one.answer.source_kind) for one in answer.slots] == [
        (0, "own_memory"),
        (1, "peer_memory"),
    ]
    assert (answer.old_layout, answer.new_layout) == (TWO, Layout())
    written = hosts[0].agent.memory.directory(harness.JOB, 0, own=True)
    assert written not in {Path(one.path).parent for one in answer.slots}
    assert {Path(one.path).parents[1].name for one in answer.slots} == {"old-2-1"}
