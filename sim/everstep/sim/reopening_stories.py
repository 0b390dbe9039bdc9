"""Named stories of jobs that had ended and are begun again by a person."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from everstep.controller.state import Phase
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.sim.answers import STOP_S_MAX
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch
from everstep.wire.v1 import jobs_pb2

OFF_S: Final = 30.0  # longer than a message to a host that is away is tried
SOON_S: Final = 20.0  # that, and a start
LONG_UPLOAD_S: Final = 100.0  # longer than ranks may take to stop


async def stop(stage: Stage, *, limit_s: float = 120.0) -> None:
    """A person ends the job, and it has ended."""
    at_ms = stage.world.clock.now_ms()
    await stage.world.order(jobs_pb2.StopJob(job_id=JOB, at_ms=at_ms))
    await stage.until(
        lambda: stage.job(JOB).phase is Phase.STOPPED, "the job is stopped", limit_s=limit_s
    )


async def restart(stage: Stage) -> None:
    """A person begins it again, from the newest that there is."""
    at_ms = stage.world.clock.now_ms()
    command = jobs_pb2.RestartJob(job_id=JOB, from_step=-1, at_ms=at_ms)
    reply = await stage.world.order(command)
    assert reply.outcome.accepted, reply.outcome


async def goes_on(stage: Stage, generation: int) -> None:
    """From the newest checkpoint: what lay in memory has been forgotten."""
    await stage.running(JOB, generation, limit_s=SOON_S)
    await stage.finish(1)
    assert stage.job(JOB).phase is Phase.SUCCEEDED, stage.job(JOB).phase
    first, second, *_ = await stage.restores(JOB)
    assert first == -1
    assert second >= 20, second
    causes = await stage.causes(JOB)
    assert causes[:3] == ["launch", "stop", "restart"], causes


async def stopped_job_is_restarted(stage: Stage) -> None:
    """Half a minute later, on whatever hosts are free."""
    await launch(stage)
    await stage.stored(JOB, 20)
    await stop(stage)
    await asyncio.sleep(OFF_S)
    await restart(stage)
    await goes_on(stage, 4)


async def restarted_before_all_have_forgotten(stage: Stage) -> None:
    """One host is away: it is still being told to forget the job when it is begun again."""
    await launch(stage)
    await stage.stored(JOB, 20)
    gone = stage.hosts_of(JOB)[1]
    stage.world.power_off(gone)
    await stop(stage)
    await restart(stage)
    await goes_on(stage, 4)


async def controller_killed_at_the_restart(stage: Stage) -> None:
    """What is stored of the restart is enough for the next controller."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    await stop(stage)
    await asyncio.sleep(OFF_S)
    begun = stage.appended(CONTROLLER, "generation_begun")
    await restart(stage)
    await begun
    world.services[CONTROLLER].kill()
    world.services[CONTROLLER].start()
    await goes_on(stage, 4)


async def monitor_away_at_the_restart(stage: Stage) -> None:
    """It takes the job up again, although it had seen it end, and finds what fails then."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    await stop(stage)
    await asyncio.sleep(OFF_S)
    world.services["monitor"].kill()
    await restart(stage)
    await asyncio.sleep(5.0)
    world.services["monitor"].start()
    await stage.running(JOB, 4)
    await asyncio.sleep(5.0)
    world.services["monitor"].kill()  # once more: the next one reads that the job lives
    world.services["monitor"].start()
    await asyncio.sleep(5.0)
    world.power_off(stage.hosts_of(JOB)[0])
    await stage.running(JOB, 5, limit_s=SOON_S)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "stop", "restart", "recovery"]


async def stopped_while_an_upload_lasts(stage: Stage) -> None:
    """The last step is stored all the same, after that: nothing else of it outlives the job."""
    world = stage.world
    world.pace = replace(world.pace, upload_s=LONG_UPLOAD_S)
    await launch(stage)
    await stage.step_reached(JOB, 15)
    training = stage.training(JOB)
    assert training is not None
    at_ms = world.clock.now_ms()
    await world.order(jobs_pb2.StopJob(job_id=JOB, at_ms=at_ms))
    await stage.until(
        lambda: stage.job(JOB).phase is Phase.STOPPED, "the job is stopped", limit_s=400.0
    )
    assert world.clock.now_ms() - at_ms > 1_000 * STOP_S_MAX, "nothing had to be waited for"
    await stage.stored(JOB, training.step)
    await restart(stage)
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, training.step]


STORIES: Final[tuple[Story, ...]] = (
    stopped_job_is_restarted,
    restarted_before_all_have_forgotten,
    controller_killed_at_the_restart,
    monitor_away_at_the_restart,
    stopped_while_an_upload_lasts,
)
