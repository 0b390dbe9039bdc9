"""Named stories of stored checkpoints that go bad, and of restarts that would have taken them."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch, step_of
from everstep.wire.v1 import jobs_pb2
from everstep.wire.v1.common_pb2 import Outcome

AWAY_S: Final = 20.0


async def restart_from_a_damaged_step(stage: Stage) -> None:
    """The only checkpoint has lost an object: the restart is refused, and the run goes on.

    It would have ended the job: what came after that step is given up, and nothing is older.
    """
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 10)
    await world.objects.memory.delete(uri_of(10, 3))
    step = step_of(stage)
    outcome = await restarted_from(stage, 10)
    assert outcome.why == "damaged", outcome
    assert "rank 3: there is no such object" in outcome.detail, outcome
    await stage.step_reached(JOB, step + 5)
    outcome = await restarted_from(stage, 10)
    assert outcome.why == "no_such_step", outcome
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def damaged_step_is_passed_over_from_then_on(stage: Stage) -> None:
    """One bit of the newest checkpoint has flipped; later a host and the one with its copies go."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    data = bytearray(await world.objects.memory.get(uri_of(20, 5)))
    data[-1] ^= 1
    await world.objects.memory.put(uri_of(20, 5), bytes(data))
    outcome = await restarted_from(stage, 20)
    assert outcome.why == "damaged", outcome
    assert "rank 5: expected xxh3-128" in outcome.detail, outcome
    training = stage.training(JOB)
    assert training is not None
    owner = stage.hosts_of(JOB)[0]
    holder = training.runs[owner].placement.replica_host_id
    assert step_of(stage) < 30, "the next checkpoint is there already"
    world.power_off(owner)
    world.power_off(holder)
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, 10]


async def restart_while_the_object_store_is_away(stage: Stage) -> None:
    """What cannot be looked at is not gone back to; nothing is held against it, and later it is."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    world.objects.up = False
    outcome = await restarted_from(stage, 10)
    assert outcome.why == "object_store_away", outcome
    await asyncio.sleep(AWAY_S)
    assert stage.job(JOB).generation == 1
    world.objects.up = True
    assert (await restarted_from(stage, 10)).accepted
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, 10]


async def restarted_from(stage: Stage, step: int) -> Outcome:
    """A person asks for it; return the answer."""
    at_ms = stage.world.clock.now_ms()
    command = jobs_pb2.RestartJob(job_id=JOB, from_step=step, at_ms=at_ms)
    return (await stage.world.order(command)).outcome


def uri_of(step: int, rank: int, *, generation: int = 1) -> str:
    """Return where a rank's object lies."""
    return f"jobs/{JOB}/step-{step:08d}/gen-{generation}/rank-{rank:05d}.shard"


async def agent_away_while_a_checkpoint_is_taken(stage: Stage) -> None:
    """The one that comes back finds the durable slots full, and stores what is in them."""
    await launch(stage)
    await stage.step_reached(JOB, 18)
    host = stage.world.hosts[stage.hosts_of(JOB)[0]]
    assert host.agent is not None
    host.agent.kill()
    await stage.step_reached(JOB, 20)
    stage.world.start_agent(host.host_id)
    await stage.stored(JOB, 20, limit_s=30.0)
    await stage.finish(1)


STORIES: Final[tuple[Story, ...]] = (
    agent_away_while_a_checkpoint_is_taken,
    restart_from_a_damaged_step,
    damaged_step_is_passed_over_from_then_on,
    restart_while_the_object_store_is_away,
)
