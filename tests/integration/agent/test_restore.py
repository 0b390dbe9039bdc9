"""Snapshots travel between two hosts, and come back from every kind of source."""

from __future__ import annotations

from tests.integration.agent import harness
from tests.integration.agent.harness import (
    RankRestore,
    own,
    peer,
    placed,
    sources_of,
    spec_json,
    start_all,
)
from tests.integration.agent.test_lifecycle import digest_after
from tests.waiting import until

from everstep.agent import restore
from everstep.agent.runs import SourceKind
from everstep.core.errors import Unavailable
from everstep.memory.reader import SlotReader
from everstep.memory.slot import VALID_OFFSET, read_preamble
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import (
    RANK_EXITED,
    RANK_READY,
    RESTORE_FAILED,
    START_FAILED,
    RestoreRanks,
    SaveRanks,
    TellSteps,
    TellStepsReply,
)
from everstep.wire.v1.checkpoints_pb2 import Shard
from everstep.wire.v1.common_pb2 import CommandReply

STEP = 6


async def run_and_fence(plane, hosts):
    """Run generation 1 until every rank and every copy holds ``STEP``, then fence at 2."""
    await start_all(
        plane, placed(hosts, 1), 1, spec_json(fail="hold", fail_at=STEP + 1, patient=True)
    )
    await until(lambda: all(replicated(host, STEP) for host in hosts), what="replicated")
    for host in hosts:
        reply = await plane.stop(host.host_id, 2)
        assert {(one.own, one.step) for one in reply.held} >= {(True, STEP), (False, STEP)}


def replicated(host, step):
    """Whether the host's own ranks have a copy of ``step`` or later elsewhere."""
    run = host.agent.runs.get(harness.JOB)
    return all(rank.control.replicated_step >= step for rank in run.ranks.values())


def slot_of(host, rank, step, *, is_own=True):
    """The slot file of a step in a host's memory."""
    return host.agent.memory.find(harness.JOB, rank, step, own=is_own).path


def corrupt(path, name="moments"):
    """Flip a bit of a tensor where it lies."""
    with SlotReader(path) as reader:
        offset = reader.entry(name).offset
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def state_in(path):
    """The fake rank's state in a slot, checked."""
    with SlotReader(path) as reader:
        reader.verify()
        return bytes(reader.tensor(reader.entry("moments")))


async def test_every_snapshot_of_a_host_lies_in_its_peers_memory(two):
    """After the fence both hosts hold their own rank and the other's, at a common step."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    assert state_in(slot_of(hosts[1], 0, STEP, is_own=False)) == digest_after(STEP)
    assert state_in(slot_of(hosts[0], 1, STEP, is_own=False)) == digest_after(STEP)


async def test_steps_that_were_told_are_told_again_on_request(two):
    """A monitor that was away asks for what it missed; a fence does not make a host forget it."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    command = TellSteps(job_id=harness.JOB, after_step=2)
    subject = host_subject("h1", "cmd.steps")
    reply = await request(plane.bus, subject, command, TellStepsReply, timeout_s=20)
    told = sorted({rank.step for message in reply.metrics for rank in message.ranks})
    assert told[: STEP - 2] == list(range(3, STEP + 1))


async def test_ranks_go_on_from_own_and_from_peer_memory(two):
    """Ranks change hosts: each state comes over TCP, or from where it lies, and continues."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    placement = placed(hosts, 1)
    placement.hosts[0].ranks[:], placement.hosts[1].ranks[:] = [1], [0]
    restores = [  # rank 1 now on h1, which keeps its copy; rank 0 now on h2, pulls it from h1
        RankRestore(rank=1, sources=[peer(hosts[0])]),
        RankRestore(rank=0, sources=[peer(hosts[0])]),
    ]
    spec = spec_json(steps=STEP + 30)
    await start_all(plane, placement, 2, spec, restore_step=STEP, restores=restores)
    ready = await until(lambda: len(got := plane.reported(RANK_READY, 2)) == 2 and got)
    assert {(one.host_id, one.rank, one.restored_step, one.source_kind) for one in ready} == {
        ("h1", 1, STEP, "peer_memory"),
        ("h2", 0, STEP, "peer_memory"),
    }
    await until(lambda: len(plane.reported(RANK_EXITED, 2)) == 2)
    await until(lambda: len({s.rank for one in plane.shards for s in one.shards}) == 2)
    for report in plane.shards:
        for shard in report.shards:
            assert digest_after(STEP + 30) in await plane.objects.get(shard.uri)


async def test_corrupt_own_copy_is_named_and_the_peer_used(two):
    """A bit that flipped in memory is found, named, and costs nothing: the peer's copy is taken."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    bad = slot_of(hosts[0], 0, STEP)
    corrupt(bad)
    placement = placed(hosts[:1], 1)
    restores = [RankRestore(rank=0, sources=[own("h1"), peer(hosts[1])])]
    await start_all(plane, placement, 2, spec_json(), restore_step=STEP, restores=restores)
    [ready] = await until(lambda: plane.reported(RANK_READY, 2))
    assert (ready.source_kind, ready.restored_step) == ("peer_memory", STEP)
    [problem] = ready.restore_problems
    assert "moments: checksum expected" in problem
    assert "own memory of h1" in problem


async def test_all_sources_bad_fails_the_start_with_every_reason(two):
    """When nothing can be loaded, the report says of each source why."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    corrupt(slot_of(hosts[0], 0, STEP))
    corrupt(slot_of(hosts[1], 0, STEP, is_own=False), "weights")
    await plane.objects.put("bad-object", b"x" * 5_000)
    gone = Shard(uri="no-object", bytes=5_000)
    bad = Shard(uri="bad-object", bytes=5_000, checksum="0" * 32)
    restores = [RankRestore(rank=0, sources=[own("h1"), peer(hosts[1]), gone, bad])]
    placement = placed(hosts[:1], 1)
    await start_all(plane, placement, 2, spec_json(), restore_step=STEP, restores=restores)
    [failed] = await until(lambda: plane.reported(START_FAILED))
    assert failed.exit_class == RESTORE_FAILED
    problems = list(failed.restore_problems)
    assert len(problems) == 4
    assert "moments: checksum expected" in problems[0]
    assert "weights: checksum expected" in problems[1]
    assert "no-object" in problems[2]
    assert f"object checksum expected {'0' * 32}, got" in problems[3]
    [end] = await until(lambda: plane.reported(RANK_EXITED, 2))
    assert end.exit_class == RESTORE_FAILED


async def test_object_store_brings_a_rank_back_without_any_memory(two):
    """An uploaded shard restores on a host that never held it."""
    plane, hosts = two
    await start_all(plane, placed(hosts[:1], 1), 1, spec_json())
    await plane.step_reached(1, 2)
    saved = await plane.ask("h1", SaveRanks(job_id=harness.JOB, generation=1), CommandReply)
    assert saved.outcome.accepted
    report = await until(lambda: plane.shards and plane.shards[0])
    control = hosts[0].agent.runs.get(harness.JOB).ranks[0].control
    await until(lambda: not control.durable_busy)
    await plane.stop("h1", 2)
    restores = [RankRestore(rank=0, sources=[report.shards[0]])]
    command = RestoreRanks(
        job_id=harness.JOB, generation=2, step=report.step, sources=sources_of(restores)
    )
    ahead = await plane.ask("h2", command, CommandReply)
    assert ahead.outcome.accepted
    spec = spec_json(steps=report.step + 3)
    placement = placed(hosts[1:], 1)
    placement.hosts[0].ranks[:] = [0]
    placement.hosts[0].replica_host_id = ""
    await start_all(plane, placement, 2, spec, restore_step=report.step, restores=restores)
    [ready] = await until(lambda: plane.reported(RANK_READY, 2))
    assert (ready.source_kind, ready.restored_step) == ("object_store", report.step)
    await until(lambda: plane.reported(RANK_EXITED, 2))
    last = await until(lambda: len(plane.shards) == 2 and plane.shards[1])
    assert digest_after(report.step + 3) in await plane.objects.get(last.shards[0].uri)


def away(objects, times):
    """Let the object store not answer ``times`` downloads."""
    left, answering = [times], objects.chunks

    async def chunks(key, *, chunk_bytes):
        if left[0]:
            left[0] -= 1
            raise Unavailable("the object store is away")
        async for chunk in answering(key, chunk_bytes=chunk_bytes):
            yield chunk

    objects.chunks = chunks


async def uploaded(plane, hosts):
    """Run generation 1 until a checkpoint is stored, then fence at 2; returns the report."""
    await start_all(plane, placed(hosts[:1], 1), 1, spec_json())
    await plane.step_reached(1, 2)
    await plane.ask("h1", SaveRanks(job_id=harness.JOB, generation=1), CommandReply)
    report = await until(lambda: plane.shards and plane.shards[0])
    await plane.stop("h1", 2)
    return report


def on_second(hosts):
    """A placement of rank 0 on the second host, which has never held it."""
    placement = placed(hosts[1:], 1)
    placement.hosts[0].ranks[:] = [0]
    placement.hosts[0].replica_host_id = ""
    return placement


async def test_object_store_that_is_away_for_a_moment_is_waited_for(two):
    """It does not answer, which says nothing against the object: nobody is to distrust it."""
    plane, hosts = two
    report = await uploaded(plane, hosts)
    away(plane.objects, 2)
    restores = [RankRestore(rank=0, sources=[report.shards[0]])]
    await start_all(
        plane, on_second(hosts), 2, spec_json(), restore_step=report.step, restores=restores
    )
    [ready] = await until(lambda: plane.reported(RANK_READY, 2))
    assert (ready.source_kind, ready.restored_step) == ("object_store", report.step)
    assert "away" in ready.restore_problems[0]
    assert list(ready.refused_sources) == []


async def test_object_store_that_stays_away_fails_the_start_and_nothing_is_refused(
    two, monkeypatch
):
    """The next try may find it there; an outage must not use checkpoints up."""
    monkeypatch.setitem(restore.PATIENCE_S, SourceKind.OBJECT_STORE, 0.3)
    plane, hosts = two
    report = await uploaded(plane, hosts)
    away(plane.objects, 1_000)
    restores = [RankRestore(rank=0, sources=[report.shards[0]])]
    await start_all(
        plane, on_second(hosts), 2, spec_json(), restore_step=report.step, restores=restores
    )
    [failed] = await until(lambda: plane.reported(START_FAILED, 2))
    assert failed.exit_class == RESTORE_FAILED
    assert "away" in failed.restore_problems[0]
    assert list(failed.refused_sources) == []


async def test_copy_of_another_history_is_not_taken_for_the_plans(two):
    """A plan that names the writer's generation gets that one, from memory and from a peer."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    other, right = own("h1"), own("h1")
    abroad = peer(hosts[1])
    other.generation = abroad.generation = 7
    right.generation = 1
    sources = sources_of([RankRestore(rank=0, sources=[other, abroad])])
    command = RestoreRanks(job_id=harness.JOB, generation=2, step=STEP, sources=sources)
    refused = await plane.ask("h1", command, CommandReply)
    assert refused.outcome.why == "restore_failed"
    assert "not in this host's memory" in refused.outcome.detail
    assert "holds no step" in refused.outcome.detail
    sources = sources_of([RankRestore(rank=0, sources=[other, right])])
    again = RestoreRanks(job_id=harness.JOB, generation=3, step=STEP, sources=sources)
    await plane.stop("h1", 3)
    assert (await plane.ask("h1", again, CommandReply)).outcome.accepted


async def test_later_steps_are_dropped_by_a_start_from_an_earlier_one(two):
    """After a roll-back nobody can find a step of the abandoned future."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    restores = [RankRestore(rank=0, sources=[own("h1")])]
    spec = spec_json(step_ms=10_000)
    await start_all(plane, placed(hosts[:1], 1), 2, spec, restore_step=STEP - 1, restores=restores)
    await until(lambda: plane.reported(RANK_READY, 2))
    held = harness.held_ranks((await plane.probe("h1")).held)
    assert [(rank, step) for rank, step, is_own in held if is_own] == [(0, STEP - 1)]


async def test_copies_of_an_older_placement_are_removed_once_useless(two):
    """When every rank has gone two snapshots further, what an earlier placement left is dropped."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    restores = [RankRestore(rank=0, sources=[own("h1")])]
    placement = placed(hosts[:1], 1)
    await start_all(plane, placement, 2, spec_json(), restore_step=STEP, restores=restores)
    memory = hosts[0].agent.memory
    await until(lambda: not any(not one.own for one in memory.held(harness.JOB)))
    await until(lambda: not memory.directory(harness.JOB, 1, own=False).exists())


async def test_torn_snapshot_of_a_killed_rank_is_never_offered(two):
    """A slot whose writer died in the middle has no valid flag and is held by nobody."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    path = slot_of(hosts[0], 0, STEP)
    with path.open("r+b") as file:
        file.seek(VALID_OFFSET)
        file.write(b"\0\0\0\0")
    assert read_preamble(path) is None
    held = (await plane.probe("h1")).held
    assert STEP not in {one.step for one in held if one.own}


async def test_durable_snapshot_that_is_not_there_frees_its_slot(two):
    """Nothing is uploaded, the slot is free again, and training goes on."""
    plane, hosts = two
    await start_all(plane, placed(hosts[:1], 1), 1, spec_json(fail="empty", fail_at=3))
    await plane.step_reached(1, 8)
    rank = hosts[0].agent.runs.get(harness.JOB).ranks[0]
    await until(lambda: not rank.control.durable_busy)
    assert plane.shards == []
