"""Named stories of ranks that are to end after a last common step, which may never come."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.state import Phase
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch
from everstep.wire.v1 import jobs_pb2

PAUSE_S_MAX: Final = 12.0  # two unanswered questions, and what hosts are told then


async def _pause(stage: Stage) -> None:
    command = jobs_pb2.PauseJob(job_id=JOB, at_ms=stage.world.clock.now_ms())
    assert (await stage.world.order(command)).outcome.accepted


async def _paused(stage: Stage) -> None:
    await stage.until(
        lambda: stage.job(JOB).phase is Phase.PAUSED, "the pause", limit_s=PAUSE_S_MAX
    )


async def host_vanishes_while_a_job_pauses(stage: Stage) -> None:
    """The others' ranks would wait a minute for its ranks' part of the last step."""
    await launch(stage)
    await stage.step_reached(JOB, 15)
    gone = stage.hosts_of(JOB)[1]
    stage.world.vanish(gone)
    await _pause(stage)
    await _paused(stage)
    await stage.finish(1)


async def host_is_back_without_its_ranks_while_a_job_pauses(stage: Stage) -> None:
    """It answers at once, and the others' ranks would wait their minute for what it had."""
    await launch(stage)
    await stage.step_reached(JOB, 15)
    gone = stage.hosts_of(JOB)[1]
    stage.world.vanish(gone)
    stage.world.power_on(gone)
    await asyncio.sleep(1.0)  # its agent is there, and nobody has missed it
    await _pause(stage)
    await _paused(stage)
    await stage.finish(1)


async def agent_dies_while_a_job_pauses(stage: Stage) -> None:
    """Its successor is asked again, and no step is lost."""
    await launch(stage)
    await stage.step_reached(JOB, 15)
    host_id = stage.hosts_of(JOB)[1]
    await _pause(stage)
    await asyncio.sleep(0.5)
    agent = stage.world.hosts[host_id].agent
    assert agent is not None
    agent.kill()
    await asyncio.sleep(1.0)
    stage.world.start_agent(host_id)
    await _paused(stage)
    await stage.finish(1)
    assert stage.world.truth.lost[JOB] == [], stage.world.truth.lost[JOB]


STORIES: Final[tuple[Story, ...]] = (
    host_vanishes_while_a_job_pauses,
    host_is_back_without_its_ranks_while_a_job_pauses,
    agent_dies_while_a_job_pauses,
)
