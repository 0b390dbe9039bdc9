"""Named stories of suspicion: what a restart takes when the numbers may have been bad."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from everstep.controller.state import TERMINAL
from everstep.sim.doubts import say
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch, step_of
from everstep.wire.v1 import checkpoints_pb2 as wire


async def suspect_states_are_not_restored(stage: Stage) -> None:
    """All memory and the newest checkpoint are suspect: an older one; what follows is clean."""
    await launch(stage)
    await stage.stored(JOB, 30)
    await stage.step_reached(JOB, 33)
    await told(stage, suspicion(stage, from_step=25))
    stage.world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await stage.running(JOB, 2)
    await stage.step_reached(JOB, 34)
    stage.world.hosts[stage.hosts_of(JOB)[0]].kill_rank(0)
    step = step_of(stage)
    await stage.running(JOB, 3)
    await stage.finish(1)
    _, first, second = await stage.restores(JOB)
    assert first == 20
    assert second >= step - 1


async def suspect_step_is_restored_on_a_persons_word(stage: Stage) -> None:
    """One step of the stretch is cleared: it is taken, and newer ones in memory are not."""
    await launch(stage)
    await stage.stored(JOB, 30)
    await stage.step_reached(JOB, 33)
    await told(stage, suspicion(stage, from_step=25))
    word = wire.DecideTrust(
        job_id=JOB, step=30, generation=1, trust="clean", by="ann", at_ms=stage.world.clock.now_ms()
    )
    await told(stage, word)
    stage.world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, 30]


async def nothing_but_suspect_states(stage: Stage) -> None:
    """The job waits rather than go on from one, and goes on when it was a false alarm."""
    await launch(stage)
    await stage.stored(JOB, 20)
    await told(stage, suspicion(stage, from_step=0))
    stage.world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await asyncio.sleep(600.0)
    assert await stage.restores(JOB) == [-1]
    assert stage.job(JOB).phase not in TERMINAL, stage.job(JOB).phase
    assert stage.job(JOB).generation == 2, "waiting is no incident"
    over = wire.EndSuspicion(
        job_id=JOB,
        suspicion_id="doubt",
        false_alarm=True,
        by="ann",
        at_ms=stage.world.clock.now_ms(),
    )
    await told(stage, over)
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert (await stage.restores(JOB))[-1] >= 20


async def pinned_checkpoint_outlives_the_others(stage: Stage) -> None:
    """Retention goes past it, with a registry killed on the way and another one beside it."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 10)
    pin = wire.PinCheckpoint(
        job_id=JOB, step=10, generation=1, by="ann", at_ms=world.clock.now_ms()
    )
    await told(stage, pin)
    twin = world.twin("checkpoint_registry")
    twin.start()
    await stage.stored(JOB, 40)
    world.services["checkpoint_registry"].kill()
    await asyncio.sleep(5.0)
    world.services["checkpoint_registry"].start()
    await stage.finish(1)
    kept = sorted(step for step, _ in world.keeping.of(JOB).complete)
    assert kept == [10, 40, 50, 60], kept


def suspicion(stage: Stage, *, from_step: int) -> wire.SuspectSteps:
    """Return a person's suspicion of all from a step on."""
    return wire.SuspectSteps(
        job_id=JOB,
        suspicion_id="doubt",
        from_step=from_step,
        to_step=-1,
        by="ann",
        at_ms=stage.world.clock.now_ms(),
    )


async def told(stage: Stage, command: Any) -> None:
    """Tell the registry until it has heard."""
    for _ in range(TRIES_MAX):
        if await say(stage.world, command):
            return
        await asyncio.sleep(1.0)
    raise AssertionError(f"the registry does not take {command}")


TRIES_MAX: Final = 30  # seconds; nothing keeps it away for longer in these stories
STORIES: Final[tuple[Story, ...]] = (
    suspect_states_are_not_restored,
    suspect_step_is_restored_on_a_persons_word,
    nothing_but_suspect_states,
    pinned_checkpoint_outlives_the_others,
)
