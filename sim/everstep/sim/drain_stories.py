"""Named stories of hosts that a job is to move off while they still work."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch
from everstep.wire.v1 import jobs_pb2


async def drain(stage: Stage, *hosts: str) -> None:
    """A person wants hosts free."""
    at_ms = stage.world.clock.now_ms()
    command = jobs_pb2.DrainHosts(job_id=JOB, hosts=hosts, why="firmware", at_ms=at_ms)
    reply = await stage.world.order(command)
    assert reply.outcome.accepted, reply.outcome


async def moved(stage: Stage, host_id: str) -> None:
    """The job has moved off a host after a last common step, and no step is made twice."""
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    await stage.finish(1)
    causes = await stage.causes(JOB)
    assert causes == ["launch", "drain"], causes
    assert stage.world.truth.lost[JOB] == [], stage.world.truth.lost[JOB]
    assert await stage.incidents(JOB) == []


async def host_is_drained(stage: Stage) -> None:
    """A spare takes the seat; no step is lost."""
    await launch(stage)
    await stage.step_reached(JOB, 15)
    host_id = stage.hosts_of(JOB)[1]
    await drain(stage, host_id)
    await moved(stage, host_id)


async def last_checkpoint_before_a_move_is_complete(stage: Stage) -> None:
    """What the old ranks store last counts, although the next generation has begun by then."""
    await launch(stage)
    await stage.step_reached(JOB, 15)
    host_id = stage.hosts_of(JOB)[1]
    await drain(stage, host_id)
    await stage.running(JOB, 2)
    step = (await stage.restores(JOB))[-1]
    known = stage.world.backing.catalog.every()
    assert any((one.step, one.generation) == (step, 1) and one.manifest_uri for one in known)
    await moved(stage, host_id)


async def drain_waits_for_a_spare(stage: Stage) -> None:
    """Without one the job runs on where it is, and moves when one joins."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 10)
    idle = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    for host_id in idle:
        world.power_off(host_id)
    await asyncio.sleep(8.0)
    mine = stage.hosts_of(JOB)[1]
    await drain(stage, mine)
    await asyncio.sleep(5.0)
    assert stage.job(JOB).generation == 1, "it moved without a spare"
    for host_id in idle:
        world.power_on(host_id)
    await asyncio.sleep(1.0)
    await stage.clear()  # they were cordoned when they were found dead
    await moved(stage, mine)


async def controller_killed_in_a_drain(stage: Stage) -> None:
    """The next one carries on from what is stored."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 15)
    mine = stage.hosts_of(JOB)[0]
    begun = stage.appended(CONTROLLER, "generation_begun")
    await drain(stage, mine)
    await begun
    world.services[CONTROLLER].kill()
    await asyncio.sleep(3.0)
    world.services[CONTROLLER].start()
    await moved(stage, mine)


async def host_lost_while_another_is_drained(stage: Stage) -> None:
    """One restart serves both."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 15)
    lost, drained = stage.hosts_of(JOB)[:2]
    idle = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    for host_id in idle:
        world.power_off(host_id)
    await asyncio.sleep(8.0)
    await drain(stage, drained)
    await asyncio.sleep(2.0)
    for host_id in idle:
        world.power_on(host_id)
    world.power_off(lost)
    await stage.clear()
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert lost not in stage.hosts_of(JOB)


async def hosts_forget_a_job_whoever_tells_them(stage: Stage) -> None:
    """One that it moved off, and all others: the controller dies before it has told them."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 15)
    left = stage.hosts_of(JOB)[1]
    await drain(stage, left)
    await stage.running(JOB, 2)
    hosts = [left, *stage.hosts_of(JOB)]
    over = stage.appended(CONTROLLER, "job_succeeded")
    await over
    world.services[CONTROLLER].kill()
    assert all(world.hosts[host_id].memory.kept() for host_id in hosts)
    await asyncio.sleep(3.0)
    world.services[CONTROLLER].start()
    await stage.until(
        lambda: not any(world.hosts[host_id].memory.kept() for host_id in hosts),
        "all to forget the job",
        limit_s=60.0,
    )


STORIES: Final[tuple[Story, ...]] = (
    host_is_drained,
    hosts_forget_a_job_whoever_tells_them,
    last_checkpoint_before_a_move_is_complete,
    drain_waits_for_a_spare,
    controller_killed_in_a_drain,
    host_lost_while_another_is_drained,
)
