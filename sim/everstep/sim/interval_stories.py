"""Named stories about how often a run saves: it changes live, for all ranks at once, and for good.

The invariants watch what every step is made under; a story adds what must have come of it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from everstep.controller.events import IntervalChanged, IntervalInForce
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.service.commands import host_subject, request
from everstep.sim.stage import Stage, spec_of
from everstep.wire.v1 import jobs_pb2
from everstep.wire.v1.agents_pb2 import SetSchedule
from everstep.wire.v1.common_pb2 import CommandReply, Schedule

JOB: Final = "job-0"
# Eight chips of 7 h, and every second failure from the object store: with the stalls that simulated
# ranks tell of (``training.Pace``), the best object interval is about 25 steps instead of 10.
BELIEF: Final = {"chip_mtbf_hours": 7.0, "memory_lost_share": 0.5}


async def interval_changes_live(stage: Stage) -> None:
    """What was measured changes the interval; the ranks follow, nothing is restarted."""
    await _launch(stage, interval="auto", failures=BELIEF)
    await stage.until(lambda: _followed(stage, 1), "the first change", limit_s=120.0)
    interval = stage.job(JOB).interval
    assert 15 <= interval.schedule.object_every_steps <= 35, interval.schedule
    assert interval.schedule.memory_every_steps == 1, interval.schedule
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    [changed] = await _changes(stage)
    assert (changed.reason, changed.auto) == ("first_measured", True)
    steps = _saved(stage, after=_since(stage))
    assert all(step % changed.schedule.object_every_steps <= 3 for step in steps), steps


async def controller_killed_after_an_interval_change(stage: Stage) -> None:
    """The change is stored and nobody was told: the next controller tells the ranks."""
    world = stage.world
    await _launch(stage, interval="auto", failures=BELIEF)
    stored = stage.appended(CONTROLLER, "interval_changed")
    await stored
    world.services[CONTROLLER].kill()
    await asyncio.sleep(5.0)
    training = stage.training(JOB)
    assert training is not None
    assert training.schedule().version == 0, "it was told before the controller died"
    world.services[CONTROLLER].start()
    await stage.until(lambda: _followed(stage, 1), "the change", limit_s=60.0)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    assert len(await _changes(stage)) == 1


async def first_host_lost_after_an_interval_change(stage: Stage) -> None:
    """The host whose rank says the interval dies: the next generation begins with the new one."""
    await _launch(stage, object_every_steps=10)
    await stage.step_reached(JOB, 10)
    await _set(stage, object_every_steps=7)
    await stage.until(lambda: _followed(stage, 1), "the change", limit_s=60.0)
    stage.world.power_off(stage.hosts_of(JOB)[0])
    await stage.running(JOB, 2)
    training = stage.training(JOB)
    assert training is not None
    first = max(training.restore_step, 0) + 1
    assert stage.world.truth.followed[JOB, training.generation, first] == 1
    await stage.finish(1)


async def interval_set_while_the_first_agent_is_away(stage: Stage) -> None:
    """Nobody can tell the first rank until its agent is back; then all ranks change at once."""
    world = stage.world
    await _launch(stage, object_every_steps=10)
    await stage.step_reached(JOB, 10)
    first = stage.hosts_of(JOB)[0]
    agent = world.hosts[first].agent
    assert agent is not None
    agent.kill()
    await _set(stage, object_every_steps=6)
    await asyncio.sleep(8.0)
    assert not _followed(stage, 1), "the ranks follow what nobody told them"
    world.start_agent(first)
    await stage.until(lambda: _followed(stage, 1), "the change", limit_s=60.0)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def another_host_is_told_an_interval(stage: Stage) -> None:
    """A host that hears of a schedule which the first one does not know changes nothing alone."""
    await _launch(stage, object_every_steps=10)
    await stage.step_reached(JOB, 10)
    second = stage.hosts_of(JOB)[1]
    schedule = Schedule(version=9, memory_every_steps=4, object_every_steps=3)
    command = SetSchedule(job_id=JOB, generation=1, schedule=schedule)
    subject = host_subject(second, "cmd.schedule")
    reply = await request(stage.world.person, subject, command, CommandReply, timeout_s=5.0)
    assert reply.outcome.accepted, reply.outcome
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    assert set(stage.world.truth.followed.values()) == {0}


async def interval_set_during_a_recovery(stage: Stage) -> None:
    """The generation that comes up is started with it, or told as soon as it runs."""
    world = stage.world
    await _launch(stage, object_every_steps=10)
    await stage.step_reached(JOB, 12)
    begun = stage.appended(CONTROLLER, "generation_begun")
    world.power_off(stage.hosts_of(JOB)[1])
    await begun
    await _set(stage, object_every_steps=9)
    await stage.running(JOB, 2)
    await stage.until(lambda: _followed(stage, 1), "the change", limit_s=60.0)
    await stage.finish(1)


async def _launch(stage: Stage, **checkpoint: Any) -> None:
    await stage.up()
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, spec_of(**checkpoint))


async def _set(stage: Stage, *, object_every_steps: int) -> None:
    command = jobs_pb2.SetInterval(
        job_id=JOB,
        memory_every_steps=-1,
        object_every_steps=object_every_steps,
        at_ms=stage.world.clock.now_ms(),
    )
    reply = await stage.world.order(command)
    assert reply.outcome.accepted, reply.outcome


def _followed(stage: Stage, version: int) -> bool:
    """Say whether the controller knows that the ranks follow a version."""
    seen = stage.job(JOB).interval.in_force
    return seen is not None and seen.version == version


def _since(stage: Stage) -> int:
    """Return from which step on the newest schedule is known to be followed."""
    seen = stage.job(JOB).interval.in_force
    assert isinstance(seen, IntervalInForce)
    return seen.step


def _saved(stage: Stage, *, after: int) -> list[int]:
    """Return the steps of complete checkpoints but the last, which every run writes."""
    steps = {one.step for one in stage.world.backing.catalog.every() if one.manifest_uri}
    return sorted(step for step in steps if after < step < max(steps))


async def _changes(stage: Stage) -> list[IntervalChanged]:
    return [e for e in await stage.events(CONTROLLER) if isinstance(e, IntervalChanged)]


STORIES: Final = (
    interval_changes_live,
    controller_killed_after_an_interval_change,
    first_host_lost_after_an_interval_change,
    interval_set_while_the_first_agent_is_away,
    another_host_is_told_an_interval,
    interval_set_during_a_recovery,
)
