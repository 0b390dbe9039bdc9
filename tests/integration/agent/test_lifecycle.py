"""Start, step, report, fence, stop and forget on real processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time

import pytest
from tests.integration.agent import harness
from tests.integration.agent.gated import GatedObjects
from tests.integration.agent.harness import hosts_on, new_plane, placed, spec_json, start_all
from tests.waiting import until

from everstep.agent import supervisor
from everstep.agent.processes import is_running
from everstep.wire.v1.agents_pb2 import (
    COLLECTIVE,
    COLLECTIVE_ERROR,
    FINISHED,
    KILLED,
    RANK_EXITED,
    RANK_READY,
    START_FAILED,
    STOPPED,
    USER_ERROR,
)


def digest_after(step: int) -> bytes:
    """The fake rank's state, computed independently."""
    digest = b"\0" * 32
    for index in range(1, step + 1):
        digest = hashlib.sha256(digest + str(index).encode()).digest()
    return digest


async def test_two_ranks_run_to_their_end(tmp_path):
    """Both ranks get ready, step, store their last state and finish; each step is told."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        replies = await start_all(plane, placed([host], 2), 1, spec_json(steps=20))
        assert [one.outcome.accepted for one in replies] == [True]
        ends = await until(lambda: len(got := plane.reported(RANK_EXITED)) == 2 and got)
        assert sorted((one.rank, one.exit_class, one.step) for one in ends) == [
            (0, FINISHED, 20),
            (1, FINISHED, 20),
        ]
        assert [one.source_kind for one in plane.reported(RANK_READY)] == ["fresh", "fresh"]
        report = await until(lambda: plane.shards and plane.shards[0])
        assert [shard.rank for shard in report.shards] == [0, 1]
        assert report.step == 20
        for shard in report.shards:
            data = await plane.objects.get(shard.uri)
            assert digest_after(20) in data
        await plane.step_reached_by_all(1, 20, 2)
        steps = [rank.step for one in plane.metrics for rank in one.ranks if rank.rank == 0]
        assert steps == list(range(1, 21))
        assert plane.metrics[5].held


@pytest.mark.parametrize(
    ("how", "exit_class", "number"),
    [("said", USER_ERROR, 0), ("exit", USER_ERROR, 0), ("segfault", KILLED, 11)],
)
async def test_rank_that_fails_is_reported_with_its_class(tmp_path, how, exit_class, number):
    """Words, codes and signals all end as one report that names the cause."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 1), 1, spec_json(fail=how, fail_at=3))
        [end] = await until(lambda: plane.reported(RANK_EXITED))
        assert (end.rank, end.exit_class, end.signal) == (0, exit_class, number)
        assert end.step == 2
        if how == "exit":
            assert end.exit_code == 7
            assert "rank 0 in" in end.traceback  # the end of its log


async def test_exception_without_words_shows_its_traceback(tmp_path):
    """A rank that dies in Python before it can speak is shown by the end of its log."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 1), 1, spec_json(fail="raise", fail_at=2))
        [end] = await until(lambda: plane.reported(RANK_EXITED))
        assert (end.exit_class, end.exit_code) == (USER_ERROR, 1)
        assert "ValueError: the user's mistake" in end.traceback


async def test_collective_error_is_told_while_the_rank_lives(tmp_path):
    """An echo is reported at once; the rank that is fenced later is not reported again."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 1), 1, spec_json(fail="collective", fail_at=2))
        [echo] = await until(lambda: plane.reported(COLLECTIVE_ERROR))
        assert (echo.exit_class, echo.error) == (COLLECTIVE, "peer closed")
        assert (await plane.stop("h1", 2)).outcome.accepted
        assert plane.reported(RANK_EXITED) == []


async def test_stop_kills_older_ranks_before_it_answers(tmp_path):
    """When the answer is there, no rank of an older generation is any more."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane) as agent:
        await start_all(plane, placed([host], 2), 1, spec_json())
        await plane.step_reached_by_all(1, 5, 2)
        pids = [rank.pid for rank in agent.runs.get(harness.JOB).ranks.values()]
        assert all(is_running(pid) for pid in pids)
        began = time.monotonic()
        reply = await plane.stop("h1", 2)
        took_ms = (time.monotonic() - began) * 1_000
        assert reply.outcome.accepted
        assert not any(is_running(pid) for pid in pids)
        held = {(rank, own): step for rank, step, own in harness.held_ranks(reply.held)}
        assert set(held) == {(0, True), (1, True)}
        assert min(held.values()) >= 4
        assert 20_000 <= reply.rendezvous_port < 65_536
        assert took_ms < 1_000, took_ms  # 50 ms on a quiet machine; benchmarks measure it
        again = await plane.stop("h1", 2)
        assert list(again.held) == list(reply.held)
        assert plane.reported(RANK_EXITED) == []


async def test_stop_waits_until_the_ranks_are_reaped(tmp_path):
    """While the fork server cannot kill, there is no answer; as soon as it has, there is."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane) as agent:
        await start_all(plane, placed([host], 1), 1, spec_json())
        await plane.step_reached(1, 3)
        os.kill(host.fork_server_pid, signal.SIGSTOP)
        stopping = asyncio.create_task(plane.stop("h1", 2))
        await until(lambda: agent.memory.fence(harness.JOB) == 2)
        newest = plane.newest_step(1)
        beats = len(plane.heartbeats)
        await until(lambda: len(plane.heartbeats) > beats)  # the agent does not stand still
        assert not stopping.done()
        os.kill(host.fork_server_pid, signal.SIGCONT)
        assert (await stopping).outcome.accepted
        assert agent.idle
        assert plane.newest_step(1) <= newest + 1  # a fenced rank's steps do not count


async def test_older_generation_is_refused_after_the_fence(tmp_path):
    """A late start of the old generation starts nothing; the current one may be asked for twice."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane) as agent:
        placement = placed([host], 1)
        await plane.stop("h1", 3)
        [late] = await start_all(plane, placement, 2, spec_json())
        assert (late.outcome.accepted, late.outcome.why) == (False, "stale_generation")
        assert agent.idle
        [first] = await start_all(plane, placement, 3, spec_json())
        await plane.step_reached(3, 2)
        pid = agent.runs.get(harness.JOB).ranks[0].pid
        [second] = await start_all(plane, placement, 3, spec_json())
        assert first.outcome.accepted
        assert second.outcome.accepted
        assert agent.runs.get(harness.JOB).ranks[0].pid == pid
        stale = await plane.stop("h1", 2)
        assert stale.outcome.why == "stale_generation"
        assert is_running(pid)


async def test_start_ends_what_no_stop_has_reached(tmp_path):
    """Ranks of an older generation, and of a job that had the host before, make way."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane) as agent:
        await start_all(plane, placed([host], 1), 1, spec_json())
        await plane.step_reached(1, 2)
        old = agent.runs.get(harness.JOB).ranks[0].pid
        await start_all(plane, placed([host], 1), 2, spec_json())
        assert not is_running(old)
        await plane.step_reached(2, 2)
        former = agent.runs.get(harness.JOB).ranks[0].pid
        command = harness.start_command(
            placed([host], 1),
            "h1",
            job_id="job-2",
            generation=1,
            spec_json=spec_json(),
            restore_step=-1,
        )
        reply = await plane.ask("h1", command, harness.CommandReply)
        assert reply.outcome.accepted
        assert not is_running(former)
        await until(
            lambda: [job.job_id for one in plane.heartbeats[-1:] for job in one.jobs] == ["job-2"]
        )
        assert plane.reported(RANK_EXITED) == []


async def test_graceful_stop_ends_with_a_stored_checkpoint(tmp_path):
    """Ranks are asked, snapshot, leave as STOPPED, and their last step is in the object store."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 1), 1, spec_json())
        await plane.step_reached(1, 3)
        reply = await plane.stop("h1", 2, graceful=True)
        assert reply.outcome.accepted
        [end] = await until(lambda: plane.reported(RANK_EXITED))
        assert end.exit_class == STOPPED
        assert [one.step for one in plane.shards] == [end.step]
        assert end.step in {one.step for one in reply.held}


async def test_forget_drops_the_memory_after_the_last_upload(tmp_path):
    """The last checkpoint is stored although the job is over; then its memory is free."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane) as agent:
            await start_all(plane, placed([host], 2), 1, spec_json(steps=10))
            await until(lambda: len(plane.reported(RANK_EXITED)) == 2)
            await plane.objects.asked.wait()
            await until(lambda: plane.heartbeats[-1].kept, what="named as kept")
            assert [(one.job_id, one.generation) for one in plane.heartbeats[-1].kept] == [
                (harness.JOB, 1)
            ]
            for _ in range(2):
                assert (await plane.stop("h1", 2, forget=True)).outcome.accepted
            beats = len(plane.heartbeats)
            await until(lambda: len(plane.heartbeats) > beats + 1, what="another heartbeat")
            assert not plane.heartbeats[-1].kept, "it only waits for the last upload"
            assert agent.memory.jobs() == [harness.JOB]
            plane.objects.gate.set()
            await until(lambda: plane.shards)
            await until(lambda: agent.memory.jobs() == [])
            await until(lambda: not plane.heartbeats[-1].kept, what="nothing kept")
            [late] = await start_all(plane, placed([host], 2), 2, spec_json())
            assert late.outcome.why == "stale_generation"
            assert (await plane.stop("h1", 3)).outcome.accepted, "a person may begin it again"


@pytest.mark.parametrize("stored", [False, True])
async def test_job_that_is_begun_again_keeps_its_memory(tmp_path, stored):
    """Told to forget it, a host that waits for the last upload still has all when it goes on."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane) as agent:
            await start_all(plane, placed([host], 2), 1, spec_json(steps=10))
            await until(lambda: len(plane.reported(RANK_EXITED)) == 2)
            await plane.objects.asked.wait()
            assert (await plane.stop("h1", 2, forget=True)).outcome.accepted
            if stored:
                plane.objects.gate.set()
                await until(lambda: agent.memory.jobs() == [], what="dropped")
            begun = await plane.stop("h1", 3)
            assert begun.outcome.accepted
            whole = [] if stored else [(0, 10, True), (1, 10, True)]
            assert [one for one in harness.held_ranks(begun.held) if one[1] == 10] == whole
            plane.objects.gate.set()
            beats = len(plane.heartbeats)
            await until(lambda: len(plane.heartbeats) > beats + 1, what="another heartbeat")
            assert [(one.job_id, one.generation) for one in plane.heartbeats[-1].kept] == [
                (harness.JOB, 3)
            ]
            late = await plane.stop("h1", 2, forget=True)
            assert late.outcome.why == "stale_generation"
        async with host.up(plane) as next_agent:
            held = [(one.rank, one.step) for one in next_agent.memory.held(harness.JOB)]
            assert [one for one in held if one[1] == 10] == [one[:2] for one in whole]


async def test_upload_of_an_older_generation_ends_with_the_fence(tmp_path):
    """What the registry would refuse is not uploaded, and its slot is free."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane) as agent:
            await start_all(plane, placed([host], 1), 1, spec_json(every=5))
            await plane.objects.asked.wait()
            control = agent.runs.get(harness.JOB).ranks[0].control
            assert control.durable_busy
            await plane.stop("h1", 2)
            await until(lambda: not control.durable_busy)
            plane.objects.gate.set()
            assert await plane.objects.list("jobs/") == []
            assert plane.shards == []


async def busy_when_stopped(plane, host):
    """Stop a rank gracefully, twice, while an upload stands still; returns its control word."""
    await start_all(plane, placed([host], 1), 1, spec_json(every=5))
    await plane.objects.asked.wait()
    control = host.agent.runs.get(harness.JOB).ranks[0].control
    first = asyncio.create_task(plane.stop("h1", 2, graceful=True))
    await asyncio.sleep(2.0)
    again = asyncio.create_task(plane.stop("h1", 2, graceful=True))
    assert (await first).outcome.accepted
    began = time.monotonic()
    assert (await again).outcome.accepted
    assert time.monotonic() - began < 1.5, "the second one waited anew"
    [end] = plane.reported(RANK_EXITED)
    assert end.exit_class == STOPPED
    assert control.durable_busy
    return control


async def test_upload_goes_on_after_a_graceful_stop(tmp_path, monkeypatch):
    """A stop does not wait for it for ever, and does not end it either."""
    monkeypatch.setattr(supervisor, "STOP_S_MAX", 3.0)
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane):
            control = await busy_when_stopped(plane, host)
            plane.objects.gate.set()
            report = await until(lambda: plane.shards and plane.shards[0])
            assert (report.generation, report.step % 5) == (1, 0)
            assert digest_after(report.step) in await plane.objects.get(report.shards[0].uri)
            await until(lambda: not control.durable_busy)


async def test_upload_that_a_graceful_stop_left_ends_with_the_next_start(tmp_path, monkeypatch):
    """New ranks write into the same slot: nothing of it is stored as the older generation's."""
    monkeypatch.setattr(supervisor, "STOP_S_MAX", 3.0)
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane):
            await busy_when_stopped(plane, host)
            await start_all(plane, placed([host], 1), 2, spec_json(steps=20, every=7))
            plane.objects.gate.set()
            await until(lambda: len(plane.reported(RANK_EXITED, 2)) == 1)
            await until(lambda: plane.shards)
            assert {one.generation for one in plane.shards} == {2}
            assert not [one.key for one in await plane.objects.list("jobs/") if "gen-1" in one.key]


async def test_orphans_of_a_rank_are_ended_with_it(tmp_path):
    """What a dead rank left running in its session is killed."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 1), 1, spec_json(fail="orphan", fail_at=2))
        [end] = await until(lambda: plane.reported(RANK_EXITED))
        assert end.exit_code == 9
        pid = int(end.traceback.split("orphan ")[1].split()[0])
        await until(lambda: not is_running(pid))


async def test_start_that_does_not_fit_is_refused(tmp_path):
    """More ranks than chips, a host that is not placed, and a broken spec are refused."""
    async with (
        hosts_on(tmp_path, "h1", "h2") as [host, other],
        new_plane() as plane,
        host.up(plane),
        other.up(plane),
    ):
        [many] = await start_all(plane, placed([host], 3), 1, spec_json())
        assert many.outcome.why == "too_many_ranks"
        command = harness.start_command(
            placed([other], 1), "h2", generation=1, spec_json=spec_json()
        )
        stranger = await plane.ask("h1", command, harness.CommandReply)
        assert stranger.outcome.why == "invalid_command"
        [broken] = await start_all(plane, placed([host], 1), 1, '{"name": "x"}')
        assert broken.outcome.why == "invalid_command"
        assert plane.reported(START_FAILED) == []
