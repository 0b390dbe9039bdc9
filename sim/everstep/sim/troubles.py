"""What befalls a run that no process dies of: ranks that stand still, bad batches, hosts to drain.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from everstep.core.errors import EverstepError
from everstep.service.commands import send_command
from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.world import World
from everstep.wire.v1 import jobs_pb2
from everstep.wire.v1.common_pb2 import CommandReply

REPLY_S: Final = 5.0
AHEAD_MAX: Final = 10  # steps until a bad batch comes
FIRST_GUILTY: Final = 8  # earlier, there is nothing to measure a loss against
LAST_GUILTY: Final = 45  # later, a run may be over before its losses have told


def _running(world: World, random: Random) -> tuple[str, int] | None:
    """Choose a job that has ranks; returns it with its newest generation."""
    newest: dict[str, int] = {}
    for job_id, generation in world.trainings:
        newest[job_id] = max(generation, newest.get(job_id, 0))
    live = [job for job, generation in newest.items() if world.trainings[job, generation].stepping]
    if not live:
        return None
    job_id = random.choice(sorted(live))
    return job_id, newest[job_id]


async def stand_still(world: World, random: Random) -> None:
    """A rank is stopped by a signal."""
    chosen = _running(world, random)
    if chosen is None:
        return
    training = world.trainings[chosen]
    rank = random.randrange(training.world_size)
    for host_id in sorted(training.runs):
        if rank in training.runs[host_id].alive:
            world.hosts[host_id].stop_rank(rank)


async def bad_batch(world: World, random: Random) -> None:
    """One of the next batches wrecks whatever is made from it; one is enough for a run."""
    chosen = _running(world, random)
    if chosen is None or world.numbers.guilty.get(chosen[0]):
        return
    position = max(world.trainings[chosen].step, FIRST_GUILTY) + random.randint(1, AHEAD_MAX)
    if position <= LAST_GUILTY:
        world.numbers.guilty[chosen[0]] = {position}


async def drain(world: World, random: Random) -> None:
    """A person wants a host for something else, and does not insist."""
    chosen = _running(world, random)
    if chosen is None:
        return
    host_id = random.choice(sorted(world.trainings[chosen].runs))
    command = jobs_pb2.DrainHosts(
        job_id=chosen[0], hosts=[host_id], why="a person", at_ms=world.clock.now_ms()
    )
    try:
        await send_command(world.person, "controller", command, CommandReply, timeout_s=REPLY_S)
    except EverstepError:
        return


async def stop_and_restart(world: World, random: Random) -> None:
    """A person ends a job, and begins it again: at once, or when its hosts serve others."""
    job_id = random.choice(sorted(world.launched))
    await world.order(jobs_pb2.StopJob(job_id=job_id, at_ms=world.clock.now_ms()))
    await asyncio.sleep(random.choice((0.0, 0.5, 10.0, 60.0)))
    command = jobs_pb2.RestartJob(job_id=job_id, from_step=-1, at_ms=world.clock.now_ms())
    await world.order(command)


KINDS: Final[dict[str, Strike]] = {
    "stop_and_restart": stop_and_restart,
    "stand_still": stand_still,
    "bad_batch": bad_batch,
    "drain": drain,
}


def draw_troubles(random: Random, *, until_s: float) -> list[Fault]:
    """Draw what befalls this run, and when: half of the runs nothing."""
    return draw_kinds(KINDS, random, nothing_share=0.5, count_max=3, until_s=until_s)
