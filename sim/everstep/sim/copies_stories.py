"""Named stories of what lies in memory once only, and what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch, step_of

WAIT_S: Final = 60.0


async def pair_lost_one_by_one_while_waiting(stage: Stage) -> None:
    """No spare: a host dies, a minute later the one with its copies, before anybody has trained.

    The job goes on from the step that it had, not from its last checkpoint.
    """
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 18)
    for host_id in sorted(set(world.hosts) - set(stage.hosts_of(JOB))):
        world.power_off(host_id)
    training, step = stage.training(JOB), step_of(stage)
    assert training is not None
    owner = stage.hosts_of(JOB)[0]
    holder = training.runs[owner].placement.replica_host_id
    world.power_off(owner)
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(WAIT_S)
    world.power_off(holder)
    await asyncio.sleep(WAIT_S)
    await stage.finish(1)
    assert min((await stage.restores(JOB))[1:]) >= step - 1, await stage.restores(JOB)


STORIES: Final[tuple[Story, ...]] = (pair_lost_one_by_one_while_waiting,)
