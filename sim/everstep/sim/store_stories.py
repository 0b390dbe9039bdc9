"""Named stories of an object store in trouble, with a registry that sweeps up meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from everstep.checkpoint_registry.state import Phase
from everstep.checkpoint_registry.sweep import Sweeping, SweepTimes
from everstep.checkpoint_registry.wiring import NAME as REGISTRY
from everstep.sim.stage import Stage
from everstep.sim.store_troubles import (
    NONE,
    Trouble,
    TroubledObjects,
    leftovers,
    missing,
    put_into,
)
from everstep.sim.telling import JOB, Story, launch

LOOK_S: Final = 0.5
TROUBLE_S: Final = 60.0
# A run of this world lasts a minute: what takes a quarter of an hour and a day outside takes this.
TIMES: Final = SweepTimes(every_s=2.0, grace_s=10.0, idle_s=200.0)
SLOW: Final = Trouble(answer_s=0.5, refused_share=0.5, late_share=0.1)
SLUGGISH: Final = Trouble(answer_s=2.0, refused_share=0.1)
SWEPT_S: Final = 300.0  # the last leftovers are idle for so long, and a look more


@asynccontextmanager
async def watched(stage: Stage) -> AsyncIterator[TroubledObjects]:
    """Let the registry sweep, and look all along whether something complete is lost."""
    objects = put_into(stage.world)
    stage.world.backing.sweeping = Sweeping(objects=objects, times=TIMES)
    lost: list[str] = []

    async def look() -> None:
        while True:
            lost.extend(await missing(stage.world))
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield objects
        assert not lost, f"of complete checkpoints there is not: {sorted(set(lost))}"
    finally:
        looking.cancel()


async def all_is_swept(stage: Stage) -> None:
    """Nothing is left but complete checkpoints, once the last leftovers have been idle."""
    await asyncio.sleep(SWEPT_S)
    left = await leftovers(stage.world)
    assert not left, f"nobody has swept up {left}"
    lost = await missing(stage.world)
    assert not lost, f"of complete checkpoints there is not: {lost}"


async def object_store_slows_down(stage: Stage) -> None:
    """Half of the requests are refused, some of them although they were done; nothing breaks."""
    async with watched(stage) as objects:
        await launch(stage)
        await stage.stored(JOB, 10)
        objects.trouble = SLOW
        await asyncio.sleep(TROUBLE_S)
        assert objects.refused_count > 10, objects.refused_count
        objects.trouble = NONE
        await stage.finish(1)
        assert await stage.causes(JOB) == ["launch"]
        await all_is_swept(stage)


async def host_lost_while_the_object_store_is_slow(stage: Stage) -> None:
    """Halves of checkpoints are left, of two generations; the registry is killed meanwhile."""
    async with watched(stage) as objects:
        world = stage.world
        await launch(stage)
        await stage.stored(JOB, 10)
        objects.trouble = SLOW
        await stage.step_reached(JOB, 21)
        world.power_off(stage.hosts_of(JOB)[1])
        await stage.running(JOB, 2)
        world.services[REGISTRY].kill()
        await asyncio.sleep(2.0)
        world.services[REGISTRY].start()
        assert await leftovers(world), "no half of a checkpoint is left: there is nothing to sweep"
        await asyncio.sleep(TROUBLE_S)
        objects.trouble = NONE
        await stage.finish(1)
        await all_is_swept(stage)


async def both_copies_lost_while_the_object_store_is_slow(stage: Stage) -> None:
    """The stored checkpoint is needed just then: a complete one is taken, however long it takes."""
    async with watched(stage) as objects:
        world = stage.world
        await launch(stage)
        await stage.stored(JOB, 20)
        objects.trouble = SLUGGISH
        await stage.until(lambda: _is_read_back(stage, 30), "all of step 30 is stored", limit_s=120)
        training = stage.training(JOB)
        assert training is not None
        owner = stage.hosts_of(JOB)[0]
        holder = training.runs[owner].placement.replica_host_id
        world.power_off(owner)
        world.power_off(holder)
        await asyncio.sleep(TROUBLE_S)
        objects.trouble = NONE
        await stage.running(JOB, 2)
        await stage.finish(1)
        restores = set((await stage.restores(JOB))[1:])
        assert restores <= {20, 30}, restores
        assert 20 in restores, restores
        await all_is_swept(stage)


def _is_read_back(stage: Stage, step: int) -> bool:
    """Say whether all ranks have reported a step, and it is not known yet what they stored."""
    known = stage.world.backing.catalog.every()
    return any(one.step == step and one.phase is Phase.STORED for one in known)


STORIES: Final[tuple[Story, ...]] = (
    object_store_slows_down,
    host_lost_while_the_object_store_is_slow,
    both_copies_lost_while_the_object_store_is_slow,
)
