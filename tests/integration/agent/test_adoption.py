"""The agent comes and goes; ranks, snapshots and what must be told stay."""

from __future__ import annotations

import fcntl
import os
import signal

import pytest
from tests.integration.agent import harness
from tests.integration.agent.harness import (
    Plane,
    RankRestore,
    hosts_on,
    new_plane,
    own,
    placed,
    spec_json,
    start_all,
)
from tests.waiting import until

from everstep.agent.processes import is_running
from everstep.agent.runs import RunFiles
from everstep.core.errors import Unavailable
from everstep.wire.v1.agents_pb2 import KILLED, RANK_EXITED, RANK_READY, START_FAILED


async def test_new_agent_goes_on_with_the_ranks_of_the_old(tmp_path):
    """Ranks step on without an agent; the next one takes their steps, copies and end."""
    async with (
        hosts_on(tmp_path, "h1", "h2") as [host, other],
        new_plane() as plane,
        other.up(plane),
    ):
        async with host.up(plane) as first:
            placement = placed([host, other], 1)
            await start_all(plane, placement, 1, spec_json())
            await plane.step_reached(1, 5)
            rank = first.runs.get(harness.JOB).ranks[0]
            pid, epoch, port = rank.pid, first.facts.agent_epoch, first.facts.peer_port
        assert is_running(pid)
        async with host.up(plane) as second:
            assert second.facts.agent_epoch != epoch
            assert second.facts.peer_port == port
            probe = await plane.probe("h1")
            assert [list(job.ranks) for job in probe.jobs] == [[0]]
            adopted = second.runs.get(harness.JOB).ranks[0]
            assert adopted.pid == pid
            before = adopted.control.replicated_step
            await until(lambda: adopted.control.replicated_step > before + 3)
            newest = plane.newest_step(1)
            await plane.step_reached(1, newest + 3)
            await until(lambda: {one.rank for one in plane.reported(RANK_READY)} == {0, 1})
            assert len(plane.reported(RANK_READY)) == 2  # nobody was restored again
            os.kill(pid, signal.SIGKILL)
            [end] = await until(lambda: plane.reported(RANK_EXITED))
            assert (end.rank, end.exit_class, end.signal) == (0, KILLED, 9)


async def test_rank_that_dies_without_an_agent_is_reported_by_the_next(tmp_path):
    """The fork server keeps the exit; it is told once."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane) as first:
            await start_all(plane, placed([host], 2), 1, spec_json())
            await plane.step_reached(1, 3)
            pid = first.runs.get(harness.JOB).ranks[1].pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_running(pid))
        async with host.up(plane):
            [end] = await until(lambda: plane.reported(RANK_EXITED))
            assert (end.rank, end.signal) == (1, 9)
        async with host.up(plane):
            await plane.step_reached(1, plane.newest_step(1) + 1)
        assert len(plane.reported(RANK_EXITED)) == 1


async def test_lost_fork_server_is_replaced_and_its_ranks_reported(tmp_path):
    """When the fork server is killed its ranks are gone: told at once, and the next start works."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane) as agent:
        hold = spec_json(fail="hold", fail_at=4)  # at one step: these ranks step alone
        await start_all(plane, placed([host], 2), 1, hold)
        await plane.step_reached_by_all(1, 3, 2)
        os.kill(host.fork_server_pid, signal.SIGKILL)
        ends = await until(lambda: len(got := plane.reported(RANK_EXITED)) == 2 and got)
        assert {(one.rank, one.exit_class, one.signal) for one in ends} == {
            (0, KILLED, 9),
            (1, KILLED, 9),
        }
        await until(lambda: agent.forks.warm)
        told = harness.held_ranks((await plane.stop("h1", 2)).held)
        step = 3
        assert {(rank, at) for rank, at, _ in told} >= {(0, step), (1, step)}
        restores = [RankRestore(rank=rank, sources=[own("h1")]) for rank in (0, 1)]
        await start_all(
            plane, placed([host], 2), 2, spec_json(), restore_step=step, restores=restores
        )
        await plane.step_reached(2, step + 2)


async def test_ranks_are_reported_while_no_fork_server_can_start(tmp_path):
    """The loss of a fork server's ranks is told without waiting for the next server."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        await start_all(plane, placed([host], 2), 1, spec_json())
        await plane.step_reached(1, 3)
        server = host.fork_server_pid
        with (host.settings.run_dir / "fork_server.pid").open("r+") as lock:
            os.kill(server, signal.SIGKILL)
            await until(lambda: not is_running(server))
            fcntl.flock(lock, fcntl.LOCK_EX)  # a new server finds another one in its place
            ends = await until(lambda: len(got := plane.reported(RANK_EXITED)) == 2 and got)
        assert {one.signal for one in ends} == {9}


async def test_restored_rank_is_not_restored_again_by_the_next_agent(tmp_path):
    """What a rank was answered is remembered: its slots are its own from then on."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, spec_json())
            await plane.step_reached(1, 3)
            [*_, newest] = (await plane.stop("h1", 2)).held
            restores = [RankRestore(rank=0, sources=[own("h1")])]
            await start_all(
                plane,
                placed([host], 1),
                2,
                spec_json(),
                restore_step=newest.step,
                restores=restores,
            )
            await plane.step_reached(2, newest.step + 4)
        async with host.up(plane) as second:
            await plane.step_reached(2, plane.newest_step(2) + 3)
            answer = second.runs.get(harness.JOB).ranks[0].answer
            assert (answer.kind, answer.step) == ("slot_ready", newest.step)
            assert plane.reported(START_FAILED) == []


async def test_start_that_an_agent_did_not_live_to_carry_out_is_carried_out(tmp_path):
    """The record is written before the first fork, so the next agent forks what is missing."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane) as first:
            await start_all(plane, placed([host], 2), 1, spec_json(steps=5))
            await until(lambda: len(plane.reported(RANK_EXITED)) == 2)
            run = first.runs.get(harness.JOB)
        for rank in run.ranks.values():  # as the file was right after the start
            rank.pid, rank.answer = 0, None
            rank.gone.clear()
        RunFiles(host.settings.run_dir / "jobs").save(run)
        plane.reports.clear()
        async with host.up(plane):
            await until(lambda: len(plane.reported(RANK_EXITED)) == 2)


async def test_ranks_that_were_fenced_while_the_agent_died_are_killed(tmp_path):
    """A fence that was written counts, although the agent that wrote it did not live to kill."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane) as first:
            await start_all(plane, placed([host], 1), 1, spec_json())
            await plane.step_reached(1, 3)
            pid = first.runs.get(harness.JOB).ranks[0].pid
            first.memory.raise_fence(harness.JOB, 2)
        async with host.up(plane):
            await until(lambda: not is_running(pid))
            assert plane.reported(RANK_EXITED) == []


async def test_host_that_lost_its_memory_takes_nothing_up_again(tmp_path):
    """A machine that comes back empty starts no rank of what it once ran, and reports none."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane) as first:
            await start_all(plane, placed([host], 1), 1, spec_json())
            await plane.step_reached(1, 3)
            run = first.runs.get(harness.JOB)
        await host.destroy()
        run.ranks[0].pid = 0
        RunFiles(host.settings.run_dir / "jobs").save(run)
        plane.reports.clear()
        async with host.up(plane) as second:
            assert second.idle
            assert (await plane.probe("h1")).jobs == []
            assert plane.reports == []


class DeafBus:
    """A bus whose durable side is away."""

    def __init__(self, bus) -> None:
        self.bus = bus
        self.away = True

    def __getattr__(self, name):
        return getattr(self.bus, name)

    async def publish_durable(self, subject, data, **options):
        if self.away:
            raise Unavailable("the test's bus is away")
        await self.bus.publish_durable(subject, data, **options)


def named(plane: Plane) -> tuple[list[int], list[int]]:
    """The ranks that the newest heartbeat calls alive, and those whose ends are not told."""
    jobs = plane.heartbeats[-1].jobs if plane.heartbeats else ()
    return (
        [rank for job in jobs for rank in job.ranks],
        [rank for job in jobs for rank in job.untold],
    )


async def test_ranks_whose_end_is_not_told_yet_are_named_until_it_is(tmp_path):
    """A monitor that hears neither of their life nor of their end takes them for vanished."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        bus = DeafBus(plane.bus)
        plane.bus = bus
        async with host.up(plane):
            await until(lambda: plane.joins)
            await start_all(plane, placed([host], 2), 1, spec_json(steps=4))
            await until(lambda: named(plane) == ([], [0, 1]), what="both ends to be untold")
            bus.away = False
            await until(lambda: len(plane.reported(RANK_EXITED)) == 2)
            await until(lambda: not plane.heartbeats[-1].jobs, what="nothing left to name")
        plane.bus = bus.bus


async def test_reports_wait_for_the_bus_and_outlive_the_agent(tmp_path):
    """What happened while the bus was away is told later, in order, by whoever is there."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        bus = DeafBus(plane.bus)
        plane.bus = bus
        async with host.up(plane) as first:
            await until(lambda: plane.joins)
            await start_all(plane, placed([host], 1), 1, spec_json(steps=4))
            await until(lambda: first.reports.pending_count == 2)
        assert plane.reports == []
        async with host.up(plane) as second:
            assert second.reports.pending_count == 2
            bus.away = False
            await until(lambda: len(plane.reports) == 2)
            assert [one.kind for one in plane.reports] == [RANK_READY, RANK_EXITED]
            await until(lambda: second.reports.pending_count == 0)
        plane.bus = bus.bus


async def test_second_agent_of_a_host_gives_way(tmp_path):
    """Two agents on one run directory would fence each other's ranks: the second does not start."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        twin = harness.Host(host.settings)
        with pytest.raises(Unavailable, match="another agent"):
            await twin.up(plane).__aenter__()
