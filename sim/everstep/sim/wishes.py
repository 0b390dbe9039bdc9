"""What people seldom ask for: other intervals, hosts that leave or work at once, windows that meet.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from everstep.core.time import SECOND_MS
from everstep.sim.faults import RESUME_TRIES_MAX, Fault, Strike, draw_kinds
from everstep.sim.upkeep import insist
from everstep.sim.world import World
from everstep.wire.v1 import hosts_pb2, jobs_pb2

RESUME_AGAIN_S: Final = 2.0


async def set_interval(world: World, random: Random) -> None:
    """A person wants checkpoints more often, seldom, or as the controller thinks best."""
    command = jobs_pb2.SetInterval(
        job_id=random.choice(sorted(world.launched)),
        auto=random.random() < 0.3,
        memory_every_steps=random.choice((-1, 1, 2)),
        object_every_steps=random.choice((-1, 0, 3, 15)),
        at_ms=world.clock.now_ms(),
    )
    await world.order(command)


async def leave(world: World, random: Random) -> None:
    """A person lets a host leave that may be needed; its agent joins again by itself.

    Not before all jobs have begun: one that is launched on a fleet that is too small is refused.
    """
    if {job_id for job_id, _ in world.trainings} != set(world.launched):
        return
    host_id = random.choice(sorted(world.hosts))
    await insist(world, hosts_pb2.LeaveHost(host_id=host_id, at_ms=world.clock.now_ms()))


async def clear_now(world: World, random: Random) -> None:
    """A person answers for a host, whatever is known of it."""
    host_id = random.choice(sorted(world.hosts))
    at_ms = world.clock.now_ms()
    await insist(world, hosts_pb2.UncordonHost(host_id=host_id, now=True, at_ms=at_ms))


async def windows(world: World, random: Random) -> None:
    """Two hosts are wanted at times that overlap, one of them for longer than was said first."""
    hosts = random.sample(sorted(world.hosts), 2)
    for host_id, wanted_s in zip((*hosts, hosts[0]), (10, 20, 40), strict=True):
        now_ms = world.clock.now_ms()
        until_ms = now_ms + wanted_s * SECOND_MS
        command = hosts_pb2.MaintainHost(
            host_id=host_id, reason="firmware", until_ms=until_ms, at_ms=now_ms
        )
        await insist(world, command)
        await asyncio.sleep(random.choice((0.0, 0.5, 5.0)))


async def pause_and_vanish(world: World, random: Random) -> None:
    """A person pauses a job, of which a host vanishes in the same moment."""
    job_id = random.choice(sorted(world.launched))
    runs = [training.runs for (job, _), training in world.trainings.items() if job == job_id]
    hosts = sorted(host for host in runs[-1] if world.hosts[host].on) if runs else []
    if not hosts:
        return
    host_id = random.choice(hosts)
    if random.random() < 0.5:
        world.vanish(host_id)
        await asyncio.sleep(random.choice((0.0, 1.0, 3.0)))
        await world.order(jobs_pb2.PauseJob(job_id=job_id, at_ms=world.clock.now_ms()))
    else:
        await world.order(jobs_pb2.PauseJob(job_id=job_id, at_ms=world.clock.now_ms()))
        await asyncio.sleep(random.choice((0.0, 0.2, 1.0)))
        if world.hosts[host_id].on:
            world.vanish(host_id)
    await asyncio.sleep(random.choice((10.0, 30.0)))
    if not world.hosts[host_id].on:
        world.power_on(host_id)
    for _ in range(RESUME_TRIES_MAX):
        command = jobs_pb2.ResumeJob(job_id=job_id, at_ms=world.clock.now_ms())
        if (await world.order(command)).outcome.accepted:
            return
        await asyncio.sleep(RESUME_AGAIN_S)


KINDS: Final[dict[str, Strike]] = {
    "set_interval": set_interval,
    "leave": leave,
    "clear_now": clear_now,
    "windows": windows,
    "pause_and_vanish": pause_and_vanish,
}


def draw_wishes(random: Random, *, until_s: float) -> list[Fault]:
    """Draw what is asked for in this run, and when: in half of the runs nothing."""
    return draw_kinds(KINDS, random, nothing_share=0.5, count_max=3, until_s=until_s)
