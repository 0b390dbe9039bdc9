"""Named stories of two instances of one service, of which one does not outlive the other."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.sim.stage import Stage, spec_of
from everstep.sim.telling import JOB, Story

JOBS: Final = (JOB, "job-1", "job-2", "job-3")  # some of them are launched by either


async def job_outlives_the_controller_that_launched_it(stage: Stage) -> None:
    """Whoever is left drives it, although nothing that happens to the job would tell it so."""
    world = stage.world
    await stage.up()
    twin = world.twin(CONTROLLER)
    twin.start()
    await asyncio.sleep(1.0)
    for number, job_id in enumerate(JOBS):
        world.launched.append(job_id)
        await world.launch(job_id, spec_of(number))
    twin.kill()
    await stage.finish(len(JOBS))
    assert {await _causes(stage, job_id) for job_id in JOBS} == {("launch",)}


async def _causes(stage: Stage, job_id: str) -> tuple[str, ...]:
    return tuple(await stage.causes(job_id))


STORIES: Final[tuple[Story, ...]] = (job_outlives_the_controller_that_launched_it,)
