"""How often ranks snapshot, from the control plane to a rank: live, once more, and late."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.agent import harness
from tests.integration.agent.harness import (
    Plane,
    hosts_on,
    new_plane,
    placed,
    spec_json,
    start_all,
    start_command,
)
from tests.waiting import until

from everstep.core import schedule as core
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import SetSchedule
from everstep.wire.v1.common_pb2 import CommandReply, Outcome, Schedule


async def reschedule(plane: Plane, generation: int, version: int, *, every: int = 1) -> Outcome:
    """Tell host h1."""
    schedule = Schedule(version=version, memory_every_steps=every, object_every_steps=9)
    command = SetSchedule(job_id=harness.JOB, generation=generation, schedule=schedule)
    subject = host_subject("h1", "cmd.schedule")
    reply = await request(plane.bus, subject, command, CommandReply, timeout_s=20.0)
    return reply.outcome


def followed(plane: Plane, generation: int) -> list[int]:
    """The versions that rank 0 told of, step by step."""
    return [
        rank.schedule_version
        for one in plane.metrics
        for rank in one.ranks
        if one.generation == generation and rank.rank == 0
    ]


async def test_schedule_reaches_the_ranks_and_an_older_one_does_not(tmp_path):
    """Told again it changes nothing; a wrong one, or an older generation's, is refused."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        assert (await reschedule(plane, 2, 1)).why == "not_running"
        await start_all(plane, placed([host], 2), 2, spec_json())
        await plane.step_reached_by_all(2, 3, 2)
        assert (await reschedule(plane, 2, 5)).accepted
        await until(lambda: followed(plane, 2)[-1] == 5)
        for version in (5, 4):
            assert (await reschedule(plane, 2, version)).accepted
        await plane.step_reached(2, plane.newest_step(2) + 10)
        versions = followed(plane, 2)
        assert versions == sorted(versions)
        assert set(versions) == {0, 5}
        assert (await reschedule(plane, 1, 9)).why == "stale_generation"
        assert (await reschedule(plane, 3, 9)).why == "not_running"
        wrong = await reschedule(plane, 2, 6, every=0)
        assert wrong.why == "invalid_command"
        assert "memory_every_steps of at least 1" in wrong.detail


async def test_schedule_outlives_the_agent(tmp_path):
    """An agent that stored it and died before it told its ranks: the next one tells them."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        async with host.up(plane) as first:
            await start_all(plane, placed([host], 1), 1, spec_json())
            await plane.step_reached(1, 3)
            run = first.runs.get(harness.JOB)
            told = core.Schedule(version=3, memory_every_steps=1, object_every_steps=9)
            run.start = replace(run.start, schedule=told)
            first.runs.save(run)
        assert followed(plane, 1)[-1] == 0
        async with host.up(plane) as second:
            await until(lambda: followed(plane, 1)[-1] == 3)
            assert second.runs.get(harness.JOB).start.schedule == told


async def test_generation_is_started_with_its_schedule(tmp_path):
    """Before its first step; every host's start carries it."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        command = start_command(
            placed([host], 1),
            "h1",
            generation=4,
            spec_json=spec_json(steps=6),
            rendezvous_address="127.0.0.1",
            rendezvous_port=1,
            restore_step=-1,
            schedule=Schedule(version=7, memory_every_steps=1, object_every_steps=2),
        )
        assert (await plane.ask("h1", command, CommandReply)).outcome.accepted
        await plane.step_reached(4, 6)
        assert followed(plane, 4) == [7] * 6
        command.generation = 5
        command.schedule.memory_every_steps = 0
        refused = await plane.ask("h1", command, CommandReply)
        assert refused.outcome.why == "invalid_command"
