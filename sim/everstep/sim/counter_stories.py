"""Named stories of hosts whose error counters say that something on them is broken."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch, one_recovery, step_of

AFTER_STEP: Final = 15


async def _begin(stage: Stage) -> str:
    await launch(stage)
    await stage.step_reached(JOB, AFTER_STEP)
    return stage.hosts_of(JOB)[1]


async def broken_host_of_a_run_that_goes_on(stage: Stage) -> None:
    """An uncorrected error that nobody has touched yet: the run moves off and loses no step."""
    host_id = await _begin(stage)
    stage.world.hosts[host_id].count_error("gpu_uncorrected")
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "drain"]
    assert stage.world.truth.lost[JOB] == [], stage.world.truth.lost[JOB]
    [incident] = await stage.incidents(JOB)
    assert (incident.kind, incident.hosts) == ("host_faulty", (host_id,)), incident


async def broken_host_without_a_spare(stage: Stage) -> None:
    """A host that may break is better than none: the run goes on there until there is another."""
    world = stage.world
    host_id = await _begin(stage)
    spares = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    for spare in spares:
        world.power_off(spare)
    fleet = stage.invariants
    await stage.until(
        lambda: all(fleet.fleet.hosts[spare].cordon is not None for spare in spares),
        "known to be away",
        limit_s=30,
    )
    world.hosts[host_id].count_error("gpu_row_remap_failed")
    await asyncio.sleep(10.0)
    step = step_of(stage)
    await stage.step_reached(JOB, step + 5)
    assert await stage.causes(JOB) == ["launch"]
    world.power_on(spares[0])
    await asyncio.sleep(1.0)
    await stage.clear()
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "drain"]
    assert stage.world.truth.lost[JOB] == []


async def broken_host_and_its_run_fails(stage: Stage) -> None:
    """All ranks cry, every host answers, one says that its GPU has gone: that one is replaced."""
    host_id = await _begin(stage)
    step = step_of(stage)
    stage.world.hosts[host_id].count_error("gpu_xid_79")
    training = stage.training(JOB)
    assert training is not None
    training.break_up("a collective failed")
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    await one_recovery(stage, "host_faulty", step)


async def broken_host_kills_its_rank(stage: Stage) -> None:
    """A rank that dies on a broken device is not started there again."""
    host_id = await _begin(stage)
    step = step_of(stage)
    host = stage.world.hosts[host_id]
    host.count_error("gpu_xid_95")
    host.kill_rank(2)
    await stage.running(JOB, 2)
    assert host_id not in stage.hosts_of(JOB)
    await one_recovery(stage, "host_faulty", step)


async def broken_spare(stage: Stage) -> None:
    """It is cordoned before anybody gets it, also when the monitor was away as it broke."""
    world = stage.world
    await _begin(stage)
    first, second = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    world.hosts[first].count_error("memory_uncorrected")
    await stage.until(
        lambda: stage.invariants.fleet.hosts[first].cordon is not None, "cordoned", limit_s=10
    )
    world.services[MONITOR].kill()
    world.hosts[second].count_error("gpu_lost")
    await asyncio.sleep(5.0)
    world.services[MONITOR].start()
    await stage.until(
        lambda: stage.invariants.fleet.hosts[second].cordon is not None, "cordoned", limit_s=20
    )
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def errors_that_rise(stage: Stage) -> None:
    """A burst is noted and ends; nothing moves for it."""
    host_id = await _begin(stage)
    stage.world.hosts[host_id].count_error("memory_corrected", by=500)
    await stage.appended(MONITOR, "incident_opened")
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    [incident] = await stage.incidents(JOB)
    assert (incident.kind, incident.hosts) == ("errors_rising", (host_id,)), incident


STORIES: Final[tuple[Story, ...]] = (
    broken_host_of_a_run_that_goes_on,
    broken_host_without_a_spare,
    broken_host_and_its_run_fails,
    broken_host_kills_its_rank,
    broken_spare,
    errors_that_rise,
)
