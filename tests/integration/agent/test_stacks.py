"""Looks at ranks that do not make it easy: none of them is harmed, and every answer is bounded."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.integration.agent import stubborn
from tests.integration.agent.harness import (
    JOB,
    Host,
    Plane,
    hosts_on,
    new_plane,
    placed,
    spec_json,
    start_all,
)
from tests.waiting import until

from everstep.agent import procfs
from everstep.agent.processes import is_running
from everstep.agent.stack_file import (
    FRAMES_MAX,
    MAIN_BYTES_MAX,
    OTHER_FRAMES_MAX,
    OTHER_THREADS_MAX,
    STACKS_SIGNAL,
    stacks_path,
)
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import (
    PROCESS_RUNNING,
    PROCESS_SLEEPING,
    PROCESS_STOPPED,
    RankStack,
    TellStacks,
    TellStacksReply,
)

STUBBORN = ("--preload", "", "--run", "tests.integration.agent.stubborn:run")


@asynccontextmanager
async def running(tmp_path, how: str) -> AsyncIterator[tuple[Plane, Host]]:
    """One host with one rank that is ready, in a run that hangs as told."""
    async with hosts_on(tmp_path, "a") as hosts, new_plane() as plane:
        (host,) = hosts
        async with host.up(plane, fork_arguments=STUBBORN) as agent:
            await start_all(plane, placed(hosts, 1), 1, spec_json(how=how))
            run = agent.runs.get(JOB)
            log = run.log_path(run.ranks[0])
            ready = stubborn.THREADS if how == "many_threads" else 1
            await until(lambda: log.exists() and log.read_text().count("ready") >= ready)
            yield plane, host


async def look(plane: Plane) -> RankStack:
    """Ask for the only rank."""
    reply = await request(
        plane.bus,
        host_subject("a", "cmd.stacks"),
        TellStacks(job_id=JOB, generation=1),
        TellStacksReply,
        timeout_s=60,
    )
    assert reply.outcome.accepted
    (found,) = reply.ranks
    return found


async def answer(plane: Plane) -> RankStack:
    """Ask until the rank has answered in time, which it may not on a busy machine."""

    async def answered() -> RankStack | None:
        seen = await look(plane)
        return seen if seen.answered else None

    seen: RankStack = await until(answered)
    return seen


async def at_rest(plane: Plane) -> RankStack | None:
    """Ask once, and take no answer that shows the rank on its way to where it waits."""
    seen = await answer(plane)
    return seen if seen.frames[-1].startswith("python/threading.py:wait") else None


def pid_of(host: Host) -> int:
    """The process of the only rank."""
    return host.agent.runs.get(JOB).ranks[0].pid


async def test_waiting_rank_tells_its_stack(tmp_path):
    """Outermost first, and nothing used of the processor."""
    async with running(tmp_path, "wait") as (plane, _):
        seen = await until(lambda: at_rest(plane))
    assert (seen.rank, seen.state, seen.answered) == (0, PROCESS_SLEEPING, True)
    assert [frame.rpartition(":")[0] for frame in seen.frames] == [
        f"{stubborn.__file__}:run",
        f"{stubborn.__file__}:wait",
        "python/threading.py:wait",
        "python/threading.py:wait",
    ]
    assert seen.cpu_ms <= seen.look_ms / 10


async def test_rank_that_holds_the_interpreter_answers_the_signal(tmp_path):
    """Its thread cannot; the handler runs within whatever holds the lock."""
    async with running(tmp_path, "hold") as (plane, _):

        async def held() -> RankStack | None:
            seen = await answer(plane)
            return seen if "hold" in seen.frames[-1] else None  # it says so just before

        seen = await until(held)
    assert (seen.state, seen.answered) == (PROCESS_RUNNING, True)
    assert [frame.rpartition(":")[0] for frame in seen.frames] == [
        f"{stubborn.__file__}:run",
        f"{stubborn.__file__}:hold",
    ]


@pytest.mark.parametrize("how", ["hold_deaf", "hold_blocking"])
async def test_rank_that_does_not_expect_the_signal_is_not_sent_it(tmp_path, how):
    """It would end the one, and wait for ever at the other."""
    async with running(tmp_path, how) as (plane, host):

        async def unanswered() -> RankStack | None:
            seen = await look(plane)
            return None if seen.answered else seen  # it may not hold the lock yet

        seen = await until(unanswered)
        assert (seen.state, seen.silence) == (PROCESS_RUNNING, "it did not answer in time")
        assert is_running(pid_of(host))
        run = host.agent.runs.get(JOB)
        told = stacks_path(run.log_path(run.ranks[0])).read_text()
        assert told.count("\n") == 1  # not even another thread of it was signalled


async def test_rank_with_a_busy_thread_is_not_harmed(tmp_path):
    """Stacks are read while nobody changes them."""
    async with running(tmp_path, "busy") as (plane, host):
        pid = pid_of(host)

        async def whole() -> RankStack | None:
            seen = await look(plane)
            return seen if seen.threads else None  # else the thread came late, on a busy machine

        for _ in range(5):
            seen = await until(whole)
            assert any("stubborn.py:" in frame for frame in seen.threads[0].frames)
        assert pid_of(host) == pid
        assert is_running(pid)


async def test_stopped_rank_is_not_asked_and_answers_when_it_goes_on(tmp_path):
    """A question that waits would be answered to nobody, each one that was asked."""
    async with running(tmp_path, "wait") as (plane, host):
        os.kill(pid_of(host), signal.SIGSTOP)
        await until(lambda: procfs.glance(pid_of(host)).state == procfs.STOPPED)
        seen = await look(plane)
        assert (seen.state, seen.answered) == (PROCESS_STOPPED, False)
        assert seen.silence == "it is stopped"
        assert not procfs.signals(pid_of(host)).pending
        os.kill(pid_of(host), signal.SIGCONT)
        assert (await answer(plane)).answered


@pytest.mark.parametrize("how", ["deep", "many_threads"])
async def test_answer_is_bounded(tmp_path, how):
    """Five hundred frames, thirty threads: the innermost frames of the first of them."""
    async with running(tmp_path, how) as (plane, _):

        async def whole() -> RankStack | None:
            seen = await at_rest(plane)
            late = seen is None or (how == "many_threads" and not seen.threads)
            return None if late else seen  # the other threads are read after the first

        seen = await until(whole)
    assert seen.answered
    assert len(seen.frames) <= FRAMES_MAX
    assert sum(len(frame) for frame in seen.frames) <= MAIN_BYTES_MAX
    assert seen.frames[-1].startswith("python/threading.py:wait")
    assert len(seen.threads) <= OTHER_THREADS_MAX
    assert all(len(thread.frames) <= OTHER_FRAMES_MAX for thread in seen.threads)
    assert how != "many_threads" or len(seen.threads) == OTHER_THREADS_MAX


async def test_who_asks_during_a_look_gets_the_same_answer(tmp_path):
    """Two who write to one file would read each other's halves."""
    async with running(tmp_path, "wait") as (plane, _):
        answers = await asyncio.gather(*(look(plane) for _ in range(8)))
    assert all(one == answers[0] for one in answers)


async def test_file_holds_one_answer_however_often_it_was_asked(tmp_path):
    """It is cut before each question."""
    async with running(tmp_path, "wait") as (plane, host):
        run = host.agent.runs.get(JOB)
        path = stacks_path(run.log_path(run.ranks[0]))
        first = await until(lambda: at_rest(plane))
        for _ in range(3):
            assert (await answer(plane)).frames == first.frames
            told = [line for line in path.read_text().splitlines() if line.startswith("answered ")]
            assert len(told) == 1


async def test_file_of_another_process_is_not_believed(tmp_path):
    """An earlier process had this log: what it wrote says nothing of this one."""
    async with running(tmp_path, "wait") as (plane, host):
        run = host.agent.runs.get(JOB)
        path = stacks_path(run.log_path(run.ranks[0]))
        lines = path.read_text().splitlines(keepends=True)
        path.write_text(lines[0].replace(str(pid_of(host)), "1"))
        seen = await look(plane)
        assert not seen.answered
        assert seen.silence


def test_signal_is_one_that_python_takes():
    """A real-time one, within what a mask of 64 bits holds."""
    assert signal.SIGRTMIN < STACKS_SIGNAL < signal.SIGRTMAX
