"""Named stories of wrong bits that a job can do nothing about: it is paused, ends, or has ended."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.state import Phase
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.corruption_stories import (
    KIND,
    WRONG,
    begin,
    flip,
    found,
    lose_spares,
    replicas,
)
from everstep.sim.reopening_stories import restart, stop
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story
from everstep.wire.v1 import jobs_pb2

LONG_S: Final = 300.0  # ranks wait twice two minutes for the judge of what is not equal
UNSTORED: Final = {"object_every_steps": 1_000}  # but for the step that a stop ends with


def is_out(stage: Stage, host_id: str) -> bool:
    """Whether nothing is placed on a host any more because it computes wrong."""
    cordon = stage.invariants.fleet.hosts[host_id].cordon
    return cordon is not None and (cordon.reason, cordon.fault) == (KIND, "corrupt")


async def _found_and_not_told(stage: Stage) -> str:
    """The monitor has stored who is wrong, and is gone; returns the host."""
    await begin(stage, replicas(3, checkpoint=UNSTORED))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit)
    await stage.appended(MONITOR, "incident_opened")
    stage.world.services[MONITOR].kill()
    return culprit


async def _begun_again(stage: Stage, culprit: str) -> None:
    """Without the host that was wrong, and from before it was: there, from the beginning."""
    await restart(stage)
    await stage.running(JOB, 4)
    assert is_out(stage, culprit)
    assert culprit not in stage.hosts_of(JOB)
    await found(stage)
    assert await stage.restores(JOB) == [-1, -1]


async def wrong_bits_told_of_while_the_job_is_stopped(stage: Stage) -> None:
    """Nothing but suspect states is stored: a restart waited for a person for ever."""
    culprit = await _found_and_not_told(stage)
    begun = stage.appended(CONTROLLER, "generation_begun")
    stopping = asyncio.ensure_future(stop(stage, limit_s=LONG_S))
    await begun
    assert stage.job(JOB).phase is Phase.STOPPING
    stage.world.services[MONITOR].start()
    await stopping
    await _begun_again(stage, culprit)


async def wrong_bits_told_of_when_the_job_is_stopped(stage: Stage) -> None:
    """The same, after its end: its hosts are free by then, and the wrong one is not to serve."""
    culprit = await _found_and_not_told(stage)
    await stop(stage, limit_s=LONG_S)
    stage.world.services[MONITOR].start()
    await stage.until(lambda: is_out(stage, culprit), "the wrong host to be out", limit_s=30.0)
    await _begun_again(stage, culprit)


async def wrong_bits_told_of_while_the_job_is_paused(stage: Stage) -> None:
    """It goes on elsewhere, from before them."""
    culprit = await _found_and_not_told(stage)
    at_ms = stage.world.clock.now_ms()
    await stage.world.order(jobs_pb2.PauseJob(job_id=JOB, at_ms=at_ms))
    stage.world.services[MONITOR].start()
    await stage.until(lambda: is_out(stage, culprit), "the wrong host to be out", limit_s=30.0)
    paused = stage.job(JOB)
    await stage.until(lambda: stage.job(JOB).phase is Phase.PAUSED, "paused", limit_s=LONG_S)
    await stage.world.order(jobs_pb2.ResumeJob(job_id=JOB, at_ms=stage.world.clock.now_ms()))
    await stage.running(JOB, paused.generation + 1)
    assert culprit not in stage.hosts_of(JOB)
    await found(stage)
    assert await stage.restores(JOB) == [-1, WRONG - 1]


async def host_to_be_left_for_wrong_bits_when_the_job_ends(stage: Stage) -> None:
    """It waited for a spare; nobody else would keep the host from the next job."""
    await begin(stage, replicas(2))
    hosts = stage.hosts_of(JOB)
    idle = sorted(set(stage.world.hosts) - set(hosts))
    await lose_spares(stage, idle)
    training = stage.training(JOB)
    assert training is not None
    flip(stage, hosts[0], training.step + 2)
    await stage.running(JOB, 2)
    await stage.appended(CONTROLLER, "drain_requested")
    await stop(stage)
    await stage.until(lambda: is_out(stage, hosts[0]), "the wrong host to be out", limit_s=30.0)
    stage.world.power_on(idle[0])
    await asyncio.sleep(1.0)
    await stage.clear(idle[0])
    await restart(stage)
    await stage.running(JOB, 5)
    assert set(stage.hosts_of(JOB)) == {hosts[1], idle[0]}
    await found(stage, 2)


STORIES: Final[tuple[Story, ...]] = (
    wrong_bits_told_of_while_the_job_is_stopped,
    wrong_bits_told_of_when_the_job_is_stopped,
    wrong_bits_told_of_while_the_job_is_paused,
    host_to_be_left_for_wrong_bits_when_the_job_ends,
)
