"""Named stories of wrong numbers: what is gone back behind, what is left out, what is held."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.core.spec import JobSpec
from everstep.monitor.events import Action, IncidentOpened
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.reopening_stories import restart, stop
from everstep.sim.stage import Stage, spec_of
from everstep.sim.telling import JOB, Story
from everstep.wire.v1 import jobs_pb2

REGISTRY: Final = "checkpoint_registry"
GUILTY: Final = 25  # position of a batch; its step is the next, and the losses after that are up
SOUND: Final = 20  # the newest checkpoint from before it


async def begin(stage: Stage, *guilty: int, spec: JobSpec | None = None) -> None:
    """Launch a job some of whose batches wreck it."""
    await stage.up()
    stage.world.numbers.guilty[JOB] = set(guilty)
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, spec or spec_of())


async def went_back(stage: Stage) -> IncidentOpened:
    """Wait for the end; the job has gone back once, and what it ended with is sound."""
    await stage.finish(1)
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked, "it ended with a wrecked state"
    [incident] = [one for one in await stage.incidents(JOB) if one.kind == "loss_spike"]
    assert incident.action is Action.ROLL_BACK, incident
    assert SOUND in await stage.restores(JOB)
    assert stage.job(JOB).skipped == incident.skipped
    return incident


async def loss_spike(stage: Stage) -> None:
    """A batch wrecks the state: back before it, and on without it, on the same hosts."""
    await begin(stage, GUILTY)
    incident = await went_back(stage)
    assert (incident.suspect_from_step, incident.step) == (GUILTY + 1, GUILTY + 4)
    assert [(one.first, one.end) for one in incident.skipped] == [(GUILTY, GUILTY + 4)]
    assert await stage.causes(JOB) == ["launch", "recovery"]
    assert await stage.restores(JOB) == [-1, SOUND]


async def loss_spike_before_any_checkpoint(stage: Stage) -> None:
    """There is nothing older than the beginning, which is not far."""
    await begin(stage, 9)
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, -1]
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked


async def loss_spike_before_the_window_is_full(stage: Stage) -> None:
    """Its first raised loss was taken for usual: the batch before that is left out all the same."""
    await begin(stage, 6)
    await stage.finish(1)
    [incident] = [one for one in await stage.incidents(JOB) if one.kind == "loss_spike"]
    assert incident.suspect_from_step == 7, incident
    assert incident.skipped[0].first == 6
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked


async def loss_spike_soon_after_a_restart(stage: Stage) -> None:
    """A person had ended the job and began it again: its older losses still say what is usual."""
    await begin(stage, 13)
    await stage.step_reached(JOB, 11)
    await stop(stage)
    await restart(stage)
    await stage.finish(1)
    [incident] = [one for one in await stage.incidents(JOB) if one.kind == "loss_spike"]
    assert incident.suspect_from_step == 14, incident
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked


async def loss_spike_while_the_registry_is_away(stage: Stage) -> None:
    """It plans before it has heard what is suspect: the plan is asked for from before that."""
    world = stage.world
    await begin(stage, GUILTY)
    await stage.stored(JOB, SOUND)
    await stage.step_reached(JOB, GUILTY)
    world.services[REGISTRY].kill()
    begun = stage.appended(CONTROLLER, "restore_decided")
    await stage.appended(MONITOR, "incident_opened")
    await asyncio.sleep(5.0)
    world.services[REGISTRY].start()
    await begun
    await went_back(stage)


async def loss_spike_and_a_host_lost_on_the_way_back(stage: Stage) -> None:
    """The next generation does not take the suspect state that lies in memory."""
    await begin(stage, GUILTY)
    await stage.appended(CONTROLLER, "hosts_fenced")
    stage.world.power_off(stage.hosts_of(JOB)[0])
    await went_back(stage)
    assert all(step <= SOUND for step in await stage.restores(JOB))


async def loss_spike_while_the_monitor_starts_anew(stage: Stage) -> None:
    """It measures against the steps that it has kept: three raised losses are enough."""
    await begin(stage, GUILTY)
    await stage.step_reached(JOB, GUILTY - 2)
    stage.world.services[MONITOR].kill()
    await asyncio.sleep(2.0)
    stage.world.services[MONITOR].start()
    await went_back(stage)


async def loss_spike_that_comes_again(stage: Stage) -> None:
    """The batches were not it: the job is held, and goes on when a person has seen to it."""
    second = await held_for_another(stage)
    stage.world.numbers.guilty[JOB].clear()
    at_ms = stage.world.clock.now_ms()
    await stage.world.order(jobs_pb2.ResumeJob(job_id=JOB, at_ms=at_ms))
    await stage.finish(1)
    restored = (await stage.restores(JOB))[-1]
    assert restored < second.suspect_from_step, "it went on from the suspect state"
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked


async def loss_spike_that_comes_again_by_other_batches(stage: Stage) -> None:
    """A person has looked at them, and has the job go on without those, too."""
    second = await held_for_another(stage)
    at_ms = stage.world.clock.now_ms()
    command = jobs_pb2.ResumeJob(job_id=JOB, at_ms=at_ms, skip_batches=True)
    assert (await stage.world.order(command)).outcome.accepted
    await stage.finish(1)
    assert stage.job(JOB).skipped[1:] == second.skipped
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.numbers.wrecked


async def held_for_another(stage: Stage) -> IncidentOpened:
    """Launch a job with two bad batches, and wait until it is held for the second."""
    await begin(stage, GUILTY, GUILTY + 7)
    await stage.until(lambda: stage.job(JOB).phase == "paused", "held", limit_s=300.0)
    first, second = await stage.incidents(JOB)
    assert (first.action, second.action) == (Action.ROLL_BACK, Action.HOLD)
    return second


async def loss_spike_at_a_spent_restart_budget(stage: Stage) -> None:
    """The job fails for its restarts; begun again by a person it goes on as it would have."""
    spec = spec_of()
    none = spec.recovery.model_copy(update={"restarts_per_hour_max": 0})
    await begin(stage, GUILTY, spec=spec.model_copy(update={"recovery": none}))
    await stage.until(lambda: stage.job(JOB).phase == "failed", "failed", limit_s=300.0)
    await restart(stage)
    await went_back(stage)
    assert await stage.causes(JOB) == ["launch", "restart"]


STORIES: Final[tuple[Story, ...]] = (
    loss_spike,
    loss_spike_before_any_checkpoint,
    loss_spike_before_the_window_is_full,
    loss_spike_soon_after_a_restart,
    loss_spike_while_the_registry_is_away,
    loss_spike_and_a_host_lost_on_the_way_back,
    loss_spike_while_the_monitor_starts_anew,
    loss_spike_that_comes_again,
    loss_spike_that_comes_again_by_other_batches,
    loss_spike_at_a_spent_restart_budget,
)
