"""Named stories of wrong bits in a host's memory: who is replaced, and what is gone back behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.core.spec import JobSpec, parse_spec
from everstep.monitor.events import Action, IncidentOpened
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.bits import TENSOR
from everstep.sim.drain_stories import drain
from everstep.sim.stage import STEPS, Stage
from everstep.sim.telling import JOB, Story

KIND: Final = "silent_corruption"
WRONG: Final = 25  # the first step whose state has a wrong bit


def replicas(count: int, **sections: Any) -> JobSpec:
    """Return the spec of a job of so many replicas, each of two tensor-parallel ranks: a host."""
    return parse_spec(
        {
            "name": "replicas",
            "entry": "model:main",
            "layout": {"dp_replicate": count, "tp": 2},
            "steps": STEPS,
            "checkpoint": {"object_every_steps": 10},
            "recovery": {"restarts_per_hour_max": 1_000},
            "numerics": {"window_steps_min": 8},
            **sections,
        }
    )


async def begin(stage: Stage, spec: JobSpec) -> None:
    """Launch a job and wait until its hosts are known."""
    await stage.up()
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, spec)
    await stage.step_reached(JOB, 5)


def flip(stage: Stage, host_id: str, step: int = WRONG) -> None:
    """Let a bit of a host's memory be wrong from a step on."""
    stage.world.bits.flips.setdefault((JOB, step), set()).add(host_id)


async def found(stage: Stage, count: int = 1) -> list[IncidentOpened]:
    """Wait for the end; the state that the job ended with is sound. Returns what was found."""
    await stage.finish(1)
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.bits.tainted, "it ended with a tainted state"
    incidents = [one for one in await stage.incidents(JOB) if one.kind == KIND]
    assert len(incidents) == count, incidents
    return incidents


async def lose_spares(stage: Stage, host_ids: Iterable[str]) -> None:
    """Lose hosts one after the other: many at once are the monitor's own blindness."""
    for host_id in host_ids:
        stage.world.power_off(host_id)
        gone = partial(_is_cordoned, stage, host_id)
        await stage.until(gone, f"{host_id} found dead", limit_s=60)


def _is_cordoned(stage: Stage, host_id: str) -> bool:
    return stage.invariants.fleet.hosts[host_id].cordon is not None


async def flipped_bit(stage: Stage) -> None:
    """Two of three replicas agree: the third one's host is out, and one step is made again."""
    await begin(stage, replicas(3))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit)
    await stage.running(JOB, 2)
    assert culprit not in stage.hosts_of(JOB)
    cordon = stage.invariants.fleet.hosts[culprit].cordon
    assert cordon is not None
    assert cordon.reason == KIND
    [incident] = await found(stage)
    assert (incident.action, incident.hosts, incident.ranks) == (Action.REPLACE, (culprit,), (2,))
    assert (incident.step, incident.suspect_from_step) == (WRONG, WRONG)
    assert incident.detail == TENSOR
    assert await stage.restores(JOB) == [-1, WRONG - 1]


async def flipped_bit_on_one_of_two(stage: Stage) -> None:
    """Nobody can say which of the two, until they have made the step again: then one moves out.

    The first time it costs a step; the move costs none.
    """
    await begin(stage, replicas(2))
    hosts = stage.hosts_of(JOB)
    flip(stage, hosts[1])
    await stage.running(JOB, 2)
    assert stage.hosts_of(JOB) == hosts
    assert all(stage.invariants.fleet.hosts[host_id].cordon is None for host_id in hosts)
    if stage.world.network.conditions.lost_share:
        await _told_in_part(stage, hosts)
        return
    await stage.running(JOB, 3)
    assert hosts[0] in stage.hosts_of(JOB)
    cordon = stage.invariants.fleet.hosts[hosts[1]].cordon
    assert cordon is not None
    assert (cordon.reason, cordon.fault) == (KIND, "corrupt")
    first, second = await found(stage, 2)
    assert (first.action, set(first.hosts)) == (Action.RESTART, set(hosts))
    assert first.reason.startswith("inconclusive")
    assert (second.action, second.hosts, second.ranks) == (Action.DRAIN, (hosts[1],), (2,))
    restores = await stage.restores(JOB)
    assert restores[:2] == [-1, WRONG - 1]
    assert restores[2] >= WRONG, "it has lost a step by moving"


async def _told_in_part(stage: Stage, hosts: list[str]) -> None:
    """A step that comes out equal is told of once: if that is lost, nobody is named by it."""
    await stage.finish(1)
    first, *later = [one for one in await stage.incidents(JOB) if one.kind == KIND]
    assert (first.action, set(first.hosts)) == (Action.RESTART, set(hosts))
    assert [one.hosts for one in later] in ([], [(hosts[1],)])


async def flipped_bit_on_one_of_two_without_a_spare(stage: Stage) -> None:
    """The run goes on where it is, watched, and moves when there is a place."""
    await begin(stage, replicas(2))
    hosts = stage.hosts_of(JOB)
    idle = sorted(set(stage.world.hosts) - set(hosts))
    await lose_spares(stage, idle)
    training = stage.training(JOB)
    assert training is not None
    flip(stage, hosts[0], training.step + 2)
    await stage.running(JOB, 2)
    await stage.appended(CONTROLLER, "drain_requested")
    await asyncio.sleep(2.0)
    assert stage.hosts_of(JOB) == hosts
    stage.world.power_on(idle[0])
    await asyncio.sleep(1.0)
    await stage.clear(idle[0])
    await stage.running(JOB, 3)
    assert hosts[0] not in stage.hosts_of(JOB)
    _, second = await found(stage, 2)
    assert (second.action, second.hosts) == (Action.DRAIN, (hosts[0],))


async def flipped_bit_that_a_new_monitor_knows_of(stage: Stage) -> None:
    """The one that saw it is gone before the step is made again; what each had was stored."""
    await begin(stage, replicas(2))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit)
    await stage.appended(CONTROLLER, "generation_begun")
    stage.world.services[MONITOR].kill()
    stage.world.services[MONITOR].start()
    first, second = await found(stage, 2)
    assert first.action is Action.RESTART
    assert (second.action, second.hosts) == (Action.DRAIN, (culprit,))


async def step_made_again_while_no_monitor_is_there(stage: Stage) -> None:
    """Let the newest generation make a few steps that nobody looks at."""
    stage.world.services[MONITOR].kill()
    await stage.until(
        lambda: (run := stage.training(JOB)) is not None and run.step > run.restore_step + 2 > 3,
        "steps of a generation that went back",
        limit_s=60,
    )
    stage.world.services[MONITOR].start()


async def flipped_bit_twice_beside_others(stage: Stage) -> None:
    """Another host was beside it the second time: who is in both pairs is named at once.

    No monitor was there when the first pair made their step again.
    """
    await begin(stage, replicas(2))
    other, culprit = stage.hosts_of(JOB)
    flip(stage, culprit, 15)
    await stage.appended(CONTROLLER, "generation_begun")
    await step_made_again_while_no_monitor_is_there(stage)
    await stage.running(JOB, 2)
    await drain(stage, other)
    await stage.running(JOB, 3)
    assert other not in stage.hosts_of(JOB)
    training = stage.training(JOB)
    assert training is not None
    flip(stage, culprit, training.step + 3)
    await stage.running(JOB, 4)
    assert culprit not in stage.hosts_of(JOB)
    first, second = await found(stage, 2)
    assert first.action is Action.RESTART
    assert (second.action, second.hosts) == (Action.REPLACE, (culprit,))


async def flipped_bit_in_one_job_and_in_the_next(stage: Stage) -> None:
    """A host that was in doubt when its job ended is named by the next one's first tie."""
    await begin(stage, replicas(2))
    other, culprit = stage.hosts_of(JOB)
    flip(stage, culprit)
    await stage.appended(CONTROLLER, "generation_begun")
    await step_made_again_while_no_monitor_is_there(stage)
    await stage.until(
        lambda: stage.job(JOB).phase == "succeeded", "the first one's end", limit_s=90
    )
    idle = sorted(set(stage.world.hosts) - {culprit, other})
    await lose_spares(stage, [other, *idle[1:]])
    following = "job-1"
    stage.world.launched.append(following)
    await stage.world.launch(following, replicas(2))
    await stage.step_reached(following, 5)
    assert set(stage.hosts_of(following)) == {culprit, idle[0]}
    stage.world.power_on(other)
    await asyncio.sleep(1.0)
    await stage.clear(other)
    stage.world.bits.flips[following, WRONG] = {culprit}
    await stage.running(following, 2)
    assert set(stage.hosts_of(following)) == {other, idle[0]}
    await stage.finish(2)
    [first] = [one for one in await stage.incidents(JOB) if one.kind == KIND]
    [second] = [one for one in await stage.incidents(following) if one.kind == KIND]
    assert (first.action, set(first.hosts)) == (Action.RESTART, {culprit, other})
    assert (second.action, second.hosts) == (Action.REPLACE, (culprit,))


async def flipped_bit_without_a_spare(stage: Stage) -> None:
    """The job waits rather than go on with a host that is wrong."""
    world = stage.world
    await begin(stage, replicas(3))
    hosts = stage.hosts_of(JOB)
    idle = sorted(set(world.hosts) - set(hosts))
    for host_id in idle:
        world.power_off(host_id)
    flip(stage, hosts[2])
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(60.0)
    world.power_on(idle[0])
    await asyncio.sleep(1.0)
    await stage.clear(idle[0])  # it was cordoned when it was found dead
    await stage.running(JOB, 2)
    assert hosts[2] not in stage.hosts_of(JOB)
    [incident] = await found(stage)
    assert incident.hosts == (hosts[2],)
    assert await stage.restores(JOB) == [-1, WRONG - 1]


async def flipped_bit_while_the_monitor_starts_anew(stage: Stage) -> None:
    """Ranks keep the sound step, and tell again what they hold, until somebody listens."""
    await begin(stage, replicas(3))
    culprit = stage.hosts_of(JOB)[0]
    flip(stage, culprit)
    await stage.step_reached(JOB, WRONG - 1)
    stage.world.services[MONITOR].kill()
    await stage.step_reached(JOB, WRONG + 4)
    stage.world.services[MONITOR].start()
    [incident] = await found(stage)
    assert (incident.hosts, incident.suspect_from_step) == ((culprit,), WRONG)
    assert await stage.restores(JOB) == [-1, WRONG - 1]


async def flipped_bit_and_a_host_lost_on_the_way_back(stage: Stage) -> None:
    """The next generation is not on the wrong host either, and does not take the wrong state."""
    await begin(stage, replicas(3))
    culprit, other, _ = stage.hosts_of(JOB)
    flip(stage, culprit)
    await stage.appended(CONTROLLER, "generation_begun")
    stage.world.power_off(other)
    await stage.running(JOB, 3)
    assert culprit not in stage.hosts_of(JOB)
    await found(stage)
    assert all(step < WRONG for step in await stage.restores(JOB))


async def flipped_bit_that_is_told_of_while_the_job_moves(stage: Stage) -> None:
    """The monitor has stored it and is gone: the controller hears of it when a move has begun."""
    await begin(stage, replicas(3))
    other, culprit, _ = stage.hosts_of(JOB)
    flip(stage, culprit)
    await stage.appended(MONITOR, "incident_opened")
    stage.world.services[MONITOR].kill()
    await drain(stage, other)
    await stage.appended(CONTROLLER, "generation_begun")
    stage.world.services[MONITOR].start()
    await stage.running(JOB, 3)
    assert not {culprit, other} & set(stage.hosts_of(JOB))
    cordon = stage.invariants.fleet.hosts[culprit].cordon
    assert cordon is not None
    assert cordon.reason == KIND
    await found(stage)
    assert await stage.causes(JOB) == ["launch", "drain", "recovery"]
    assert all(step < WRONG for step in await stage.restores(JOB))


async def flipped_bit_in_the_last_step(stage: Stage) -> None:
    """The run is not over before somebody has looked at what it ends with."""
    await begin(stage, replicas(3))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit, STEPS)
    [incident] = await found(stage)
    assert incident.hosts == (culprit,)
    assert await stage.restores(JOB) == [-1, STEPS - 1]


async def flipped_bit_that_only_checkpoints_show(stage: Stage) -> None:
    """The ranks take none into memory: what is told of bits is that of the newest of both kinds."""
    schedule = {"memory_every_steps": 1_000, "object_every_steps": 5}
    await begin(stage, replicas(3, checkpoint=schedule))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit, WRONG - 1)
    await stage.running(JOB, 2)
    [incident] = await found(stage)
    assert (incident.hosts, incident.suspect_from_step) == ((culprit,), WRONG - 4)
    assert await stage.restores(JOB) == [-1, WRONG - 5]


async def flipped_bit_that_is_only_noted(stage: Stage) -> None:
    """The run goes on as it is: that was the wish."""
    await begin(stage, replicas(3, corruption={"on_corruption": "note"}))
    culprit = stage.hosts_of(JOB)[1]
    flip(stage, culprit)
    await stage.finish(1)
    [incident] = await stage.incidents(JOB)
    assert (incident.kind, incident.action, incident.hosts) == (KIND, Action.NOTE, (culprit,))
    assert await stage.causes(JOB) == ["launch"]


async def flipped_bit_from_the_beginning(stage: Stage) -> None:
    """What was never equal may be none that must be: it is said, and nobody is blamed.

    Nor are those that a later generation, which begins with it, has beside it.
    """
    await stage.up()
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, replicas(3))
    await stage.until(
        lambda: (run := stage.training(JOB)) is not None and len(run.runs) == 3,
        "all hosts to have forked",
        limit_s=60,
    )
    hosts = stage.hosts_of(JOB)
    flip(stage, hosts[1], 1)
    await stage.step_reached(JOB, WRONG)
    stage.world.power_off(hosts[0])
    await stage.running(JOB, 2)
    await asyncio.sleep(5 * stage.world.pace.step_s)
    assert stage.job(JOB).generation == 2, "somebody is blamed"
    await stage.finish(1)
    assert [one.kind for one in await stage.incidents(JOB)] == ["never_equal", "host_lost"]
    assert await stage.causes(JOB) == ["launch", "recovery"]


STORIES: Final[tuple[Story, ...]] = (
    flipped_bit,
    flipped_bit_on_one_of_two,
    flipped_bit_on_one_of_two_without_a_spare,
    flipped_bit_that_a_new_monitor_knows_of,
    flipped_bit_twice_beside_others,
    flipped_bit_in_one_job_and_in_the_next,
    flipped_bit_without_a_spare,
    flipped_bit_while_the_monitor_starts_anew,
    flipped_bit_and_a_host_lost_on_the_way_back,
    flipped_bit_that_is_told_of_while_the_job_moves,
    flipped_bit_in_the_last_step,
    flipped_bit_that_only_checkpoints_show,
    flipped_bit_that_is_only_noted,
    flipped_bit_from_the_beginning,
)
