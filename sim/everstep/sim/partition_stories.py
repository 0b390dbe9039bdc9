"""Named stories of hosts that do not reach one another, or that we do not reach."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.stage import STEPS, Stage
from everstep.sim.telling import JOB, Story, launch, one_recovery, step_of

AFTER_STEP: Final = 15
TOLD_S: Final = 2.0  # ranks end, and what they tell is stored
FOUND_S_MAX: Final = 15.0  # DESIGN section 11, for a hang


async def _begin(stage: Stage) -> str:
    """Let a job run for a while; returns one of its hosts, which is not the first."""
    await launch(stage)
    await stage.step_reached(JOB, AFTER_STEP)
    return stage.hosts_of(JOB)[1]


def _spares(stage: Stage) -> list[str]:
    return sorted(set(stage.world.hosts) - set(stage.hosts_of(JOB)))


async def _told(stage: Stage) -> list[tuple[str, tuple[str, ...]]]:
    """Return what the job's incidents were, and of which hosts."""
    return [(one.kind, one.hosts) for one in await stage.incidents(JOB)]


async def ends_told_late(stage: Stage) -> None:
    """A host's reports are lost just as a run ends: its ranks have not vanished.

    Found by the fault matrix: the run was restarted for its last steps.
    """
    await launch(stage)
    await stage.step_reached(JOB, STEPS - 1)
    host = stage.world.hosts[stage.hosts_of(JOB)[1]]
    assert host.agent is not None
    host.agent.endpoint.loses_stored = True
    await asyncio.sleep(20.0)
    host.agent.endpoint.loses_stored = False
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    assert await stage.incidents(JOB) == []


async def word_of_a_generation_comes_after_its_ends(stage: Stage) -> None:
    """A generation is through before the monitor is told that it has begun: it is not made again.

    Found by seed 42090. The controller's events are lost on their way while its commands are not,
    and the monitor that the ends were told to is gone by then.
    """
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, STEPS - 3)
    controller = world.services[CONTROLLER].endpoint
    assert controller is not None
    controller.loses_stored = True
    world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await stage.running(JOB, 2)
    await stage.step_reached(JOB, STEPS)
    await asyncio.sleep(TOLD_S)
    world.services[MONITOR].kill()
    world.services[MONITOR].start()
    controller.loses_stored = False
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "recovery"]
    assert [kind for kind, _ in await _told(stage)] == ["rank_killed"]


async def partitioned_host(stage: Stage) -> None:
    """A host answers us and reaches no peer: the run hangs, the links tell, a spare takes over."""
    host_id = await _begin(stage)
    opened, at_ms = stage.appended(MONITOR, "incident_opened"), stage.world.now_ms
    stage.world.links.cut([host_id])
    await opened
    assert stage.world.now_ms - at_ms <= 1e3 * FOUND_S_MAX, stage.world.now_ms - at_ms
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    old = stage.world.trainings[JOB, 1]
    await stage.until(lambda: old.broken, "old ranks ended, long before they time out", limit_s=20)
    stage.world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def partitioned_one_way(stage: Stage) -> None:
    """Nobody reaches the host; it reaches everybody."""
    host_id = await _begin(stage)
    stage.world.links.cut([host_id], one_way=True)
    await stage.running(JOB, 2)
    stage.world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def partitioned_first_host(stage: Stage) -> None:
    """The first rank's host is cut, where the rendezvous is."""
    await _begin(stage)
    host_id = stage.hosts_of(JOB)[0]
    stage.world.links.cut([host_id])
    await stage.running(JOB, 2)
    stage.world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def partition_with_resets(stage: Stage) -> None:
    """Every collective fails at once and every host answers: found by the links all the same."""
    host_id = await _begin(stage)
    stage.world.links.cut([host_id], resets=True)
    await stage.running(JOB, 2, limit_s=20)
    stage.world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def partition_flaps(stage: Stage) -> None:
    """A link breaks twice, for a second each: the first time in place, then without the host."""
    world = stage.world
    host_id = await _begin(stage)
    for generation in (2, 3):
        world.links.cut([host_id], resets=True)
        await asyncio.sleep(1.0)
        world.links.mend()
        await stage.running(JOB, generation)
        await asyncio.sleep(20.0)
    await stage.finish(1)
    assert await _told(stage) == [("collective_error", ()), ("partitioned", (host_id,))]
    assert (await stage.restores(JOB))[1] >= AFTER_STEP - 1


async def partition_while_the_monitor_is_away(stage: Stage) -> None:
    """A new monitor begins to wait anew, and finds the same."""
    world = stage.world
    host_id = await _begin(stage)
    world.services[MONITOR].kill()
    world.links.cut([host_id])
    await asyncio.sleep(20.0)
    world.services[MONITOR].start()
    await stage.running(JOB, 2)
    world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def partition_without_a_spare(stage: Stage) -> None:
    """The job waits for a host, and goes on with the same one when it is back."""
    world = stage.world
    host_id = await _begin(stage)
    for spare in _spares(stage):
        world.power_off(spare)
    world.links.cut([host_id])
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(30.0)
    world.links.mend()
    await stage.clear()
    await stage.running(JOB, 2)
    assert host_id in stage.hosts_of(JOB)
    await one_recovery(stage, "partitioned", AFTER_STEP)


async def partition_of_halves(stage: Stage) -> None:
    """Neither half is larger: it is said, nobody is evicted, and the run goes on when it may."""
    world = stage.world
    await _begin(stage)
    half = [*stage.hosts_of(JOB)[:2], _spares(stage)[0]]
    noted = stage.appended(MONITOR, "incident_opened")
    world.links.cut(half)
    await noted
    await asyncio.sleep(30.0)
    world.links.mend()
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    assert await _told(stage) == [("partition_undecided", ())]


async def partition_of_a_group(stage: Stage) -> None:
    """A host of the job and a spare are cut together; the spare may be taken, and found then."""
    world = stage.world
    host_id = await _begin(stage)
    spare = _spares(stage)[0]
    world.links.cut([host_id, spare])
    await stage.until(
        lambda: (
            (run := stage.training(JOB)) is not None
            and run.generation > 1
            and run.step > max(run.restore_step, 0)
        ),
        "stepping elsewhere",
        limit_s=400,
    )
    assert not {host_id, spare} & set(stage.hosts_of(JOB))
    world.links.mend()
    await stage.finish(1)
    told = await _told(stage)
    assert told[0] == ("partitioned", (host_id,)), told
    assert all(one in {("partitioned", (host_id,)), ("partitioned", (spare,))} for one in told)


async def link_flaps_after_all_hosts_have_vanished(stage: Stage) -> None:
    """Seed 5145, the simulator's own: nobody was there to break the run, a link revived it."""
    world = stage.world
    await _begin(stage)
    old = world.trainings[JOB, 1]
    for host_id in stage.hosts_of(JOB):
        world.vanish(host_id)
    step = old.step
    await asyncio.sleep(2.0)
    world.links.cut(_spares(stage)[:1])
    world.links.cut([next(iter(old.runs))])
    world.links.mend()
    await asyncio.sleep(5.0)
    assert old.step == step, "ranks that are gone have made a step"
    await stage.finish(1)


async def services_killed_in_a_partition(stage: Stage) -> None:
    """The monitor dies at its verdict, the controller at its decision: one outcome."""
    world = stage.world
    host_id = await _begin(stage)
    opened = stage.appended(MONITOR, "incident_opened")
    begun = stage.appended(CONTROLLER, "generation_begun")
    world.links.cut([host_id])
    await opened
    world.services[MONITOR].kill()
    await asyncio.sleep(5.0)
    world.services[MONITOR].start()
    await begun
    world.services[CONTROLLER].kill()
    await asyncio.sleep(5.0)
    world.services[CONTROLLER].start()
    await stage.running(JOB, 2)
    world.links.mend()
    await one_recovery(stage, "partitioned", AFTER_STEP)
    assert await _told(stage) == [("partitioned", (host_id,))]


async def unreachable_and_the_job_stops(stage: Stage) -> None:
    """We do not reach a host, its peers do; then a rank dies elsewhere: one decision."""
    world = stage.world
    host_id = await _begin(stage)
    agent = world.hosts[host_id].agent
    assert agent is not None
    agent.endpoint.cut()
    await asyncio.sleep(10.0)
    step = step_of(stage)
    assert await stage.incidents(JOB) == []
    world.hosts[stage.hosts_of(JOB)[2]].kill_rank(4)
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    agent.endpoint.mend()
    await one_recovery(stage, "host_lost", step)
    assert await _told(stage) == [("host_lost", (host_id,))]


async def shards_are_told_after_the_next_plan(stage: Stage) -> None:
    """A host has stored its part of a step that the job goes on from, and can tell only later."""
    await launch(stage)
    await stage.step_reached(JOB, 20)
    host_id, other = stage.hosts_of(JOB)[1:3]
    host = stage.world.hosts[host_id]
    assert host.agent is not None
    host.agent.endpoint.cut()
    await stage.step_reached(JOB, 25)
    stage.world.hosts[other].kill_rank(stage.world.trainings[JOB, 1].runs[other].ranks[0])
    await stage.running(JOB, 2)
    [plan] = (await stage.restores(JOB))[1:]
    assert plan >= 20, plan
    assert [one.step for one in host.uploads] == [20], "it has been told already"
    host.agent.endpoint.mend()
    await stage.stored(JOB, 20)
    await stage.finish(1)


async def returned_from_a_partition(stage: Stage) -> None:
    """Cut from everybody, replaced, and back: nothing that it still writes counts."""
    world = stage.world
    host_id = await _begin(stage)
    agent = world.hosts[host_id].agent
    assert agent is not None
    agent.endpoint.cut()
    world.links.cut([host_id])
    await stage.running(JOB, 2)
    await stage.step_reached(JOB, AFTER_STEP + 10)
    agent.endpoint.mend()
    world.links.mend()
    await stage.until(
        lambda: JOB not in world.hosts[host_id].runs or not world.hosts[host_id].runs[JOB].alive,
        "its old ranks ended",
        limit_s=20,
    )
    await one_recovery(stage, "host_lost", AFTER_STEP)
    newest = world.backing.catalog.every()
    assert all(one.generation == 2 for one in newest if one.step > AFTER_STEP + 5), newest


STORIES: Final[tuple[Story, ...]] = (
    ends_told_late,
    word_of_a_generation_comes_after_its_ends,
    partitioned_host,
    partitioned_one_way,
    partitioned_first_host,
    partition_with_resets,
    partition_flaps,
    partition_while_the_monitor_is_away,
    partition_without_a_spare,
    partition_of_halves,
    partition_of_a_group,
    link_flaps_after_all_hosts_have_vanished,
    services_killed_in_a_partition,
    unreachable_and_the_job_stops,
    shards_are_told_after_the_next_plan,
    returned_from_a_partition,
)
