"""Named stories of a job that goes on with fewer ranks when hosts are short, and grows back."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from everstep.checkpoint_registry.events import RestoreLaidOut
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.core.spec import JobSpec, parse_spec
from everstep.sim.stage import Stage, spec_of
from everstep.sim.telling import JOB, Story, step_of

# Two replicas of two shards: it can lose half twice.
WIDE: Final = {"dp_replicate": 2, "dp_shard": 2, "tp": 2}


def elastic(*, layout: dict[str, int] | None = None, **recovery: Any) -> JobSpec:
    """A job that does not wait for hosts."""
    document = spec_of().model_dump()
    document["recovery"] |= {"no_spare": "elastic", **recovery}
    document["layout"] = layout or document["layout"]
    return parse_spec(document)


async def without_spares(stage: Stage, spec: JobSpec, *, step: int = 15) -> list[str]:
    """Begin the job, let it come to a step, and lose every idle host; returns these."""
    await stage.up()
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, spec)
    await stage.step_reached(JOB, step - 8)
    idle = sorted(set(stage.world.hosts) - set(stage.hosts_of(JOB)))
    for host_id in idle:
        stage.world.power_off(host_id)
    await stage.step_reached(JOB, step)
    return idle


def ranks_of(stage: Stage) -> int:
    """How many ranks the newest generation has."""
    training = stage.training(JOB)
    assert training is not None
    return training.world_size


async def is_running_with(stage: Stage, ranks: int) -> None:
    """Wait until so many ranks step."""
    await stage.until(
        lambda: (
            (run := stage.training(JOB)) is not None
            and run.world_size == ranks
            and run.stepping
            and run.step > max(run.restore_step, 0) + 3
        ),
        f"{ranks} ranks stepping",
        limit_s=120,
    )


async def comes_back(stage: Stage, *host_ids: str) -> None:
    """Hosts are there again, and a person has cleared them."""
    for host_id in host_ids:
        stage.world.power_on(host_id)
    await asyncio.sleep(1.0)
    await stage.clear()


def lost_steps(stage: Stage) -> int:
    """How many steps were made twice."""
    return len(stage.world.truth.lost.get(JOB, []))


async def shrinks_and_grows_back(stage: Stage) -> None:
    """Half of the ranks go on at once; all of them when there is a host, with no step lost."""
    idle = await without_spares(stage, elastic())
    stage.world.power_off(stage.hosts_of(JOB)[1])
    await is_running_with(stage, 4)
    lost = lost_steps(stage)
    assert lost <= 1, stage.world.truth.lost
    await comes_back(stage, idle[0])
    await is_running_with(stage, 8)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "recovery", "grow"]
    assert lost_steps(stage) == lost, "growing has lost a step"


def holder_of(stage: Stage, host_id: str) -> str:
    """Return who keeps the copies of a host's snapshots."""
    training = stage.training(JOB)
    assert training is not None
    return training.runs[host_id].placement.replica_host_id


async def shrinks_twice(stage: Stage) -> None:
    """Two of four groups, then one; and all four again."""
    idle = await without_spares(stage, elastic(layout=WIDE))
    stage.world.power_off(stage.hosts_of(JOB)[0])
    await is_running_with(stage, 4)
    for host_id in stage.hosts_of(JOB)[:1]:
        stage.world.power_off(host_id)
    spare = [h for h in stage.world.hosts if stage.world.hosts[h].on]
    assert len(spare) == 2  # one of them has been left
    await is_running_with(stage, 4)
    stage.world.power_off(stage.hosts_of(JOB)[0])
    await is_running_with(stage, 2)
    await comes_back(stage, *idle)
    await is_running_with(stage, 4)
    await stage.finish(1)
    assert ranks_of(stage) == 8


async def lost_again_before_the_new_cut_is_safe(stage: Stage) -> None:
    """The next host dies before any new snapshot has a copy: the old ones still serve."""
    world = stage.world
    await without_spares(stage, elastic(layout=WIDE))
    step = step_of(stage)
    first = stage.hosts_of(JOB)[0]
    holder = holder_of(stage, first)
    world.power_off(first)
    await stage.until(lambda: ranks_of(stage) == 4, "fewer ranks", limit_s=30)
    world.power_off(next(one for one in stage.hosts_of(JOB) if one != holder))
    await is_running_with(stage, 4)
    await stage.finish(1)
    assert min((await stage.restores(JOB))[1:3]) >= step - 1


async def lost_again_with_a_first_new_snapshot(stage: Stage) -> None:
    """It has no copy yet, and took nothing of the old ones away."""
    world = stage.world
    await without_spares(stage, elastic(layout=WIDE))
    step = step_of(stage)
    first = stage.hosts_of(JOB)[0]
    holder = holder_of(stage, first)
    world.power_off(first)
    await stage.until(
        lambda: (
            (run := stage.training(JOB)) is not None
            and run.world_size == 4
            and run.step == run.restore_step + 1
        ),
        "a first new step",
        limit_s=60,
    )
    world.power_off(next(one for one in stage.hosts_of(JOB) if one != holder))
    await is_running_with(stage, 4)
    await stage.finish(1)
    assert min((await stage.restores(JOB))[1:3]) >= step - 1


async def host_lost_while_it_grows(stage: Stage) -> None:
    """It goes on with what is left."""
    world = stage.world
    idle = await without_spares(stage, elastic())
    world.power_off(stage.hosts_of(JOB)[1])
    await is_running_with(stage, 4)
    begun = stage.appended(CONTROLLER, "ranks_started")
    await comes_back(stage, idle[0])
    await begun
    world.power_off(stage.hosts_of(JOB)[2])
    await is_running_with(stage, 4)
    await stage.finish(1)
    assert ranks_of(stage) == 8


def controller_killed(event: str, moment: str) -> Story:
    """Return a story in which the controller dies right after a fact of a change of layout."""

    async def story(stage: Stage) -> None:
        world = stage.world
        idle = await without_spares(stage, elastic())
        happened = stage.appended(CONTROLLER, event)
        world.power_off(stage.hosts_of(JOB)[1])
        if moment == "growth":
            await is_running_with(stage, 4)
            happened = stage.appended(CONTROLLER, event)
            await comes_back(stage, idle[0])
        await happened
        world.services[CONTROLLER].kill()
        await asyncio.sleep(3.0)
        world.services[CONTROLLER].start()
        if moment == "shrinking":
            await is_running_with(stage, 4)
            await comes_back(stage, idle[0])
        await is_running_with(stage, 8)
        await stage.finish(1)

    story.__name__ = f"controller_killed_after_{event}_of_{moment}"
    return story


async def shrinks_from_the_object_store(stage: Stage) -> None:
    """A host and the holder of its copies are lost: nobody else has these shards."""
    world = stage.world
    await without_spares(stage, elastic(), step=15)
    await stage.stored(JOB, 20)
    owner = stage.hosts_of(JOB)[0]
    holder = holder_of(stage, owner)
    world.power_off(owner)
    world.power_off(holder)
    await is_running_with(stage, 4)
    plans = [e for e in await stage.events("checkpoint_registry") if isinstance(e, RestoreLaidOut)]
    assert plans[-1].old_layout is not None
    assert (plans[-1].step, len(plans[-1].shards)) == (20, 8)
    await stage.finish(1)


async def too_few_hosts_for_an_elastic_job(stage: Stage) -> None:
    """Below `dp_min` it waits, and goes on as a whole when there are hosts."""
    idle = await without_spares(stage, elastic(dp_min=2))
    stage.world.power_off(stage.hosts_of(JOB)[1])
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(20.0)
    assert stage.job(JOB).generation == 2
    await comes_back(stage, idle[0])
    await is_running_with(stage, 8)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "recovery"]


async def lost_host_returns_at_once(stage: Stage) -> None:
    """It comes back empty; the job takes it at once, or as soon as it may."""
    world = stage.world
    await without_spares(stage, elastic())
    lost = stage.hosts_of(JOB)[1]
    world.power_off(lost)
    world.power_on(lost)
    await stage.running(JOB, 2)
    await stage.clear()
    await is_running_with(stage, 8)
    await stage.finish(1)
    assert lost_steps(stage) <= 1, stage.world.truth.lost


STORIES: Final[tuple[Story, ...]] = (
    shrinks_and_grows_back,
    shrinks_twice,
    lost_again_before_the_new_cut_is_safe,
    lost_again_with_a_first_new_snapshot,
    host_lost_while_it_grows,
    shrinks_from_the_object_store,
    too_few_hosts_for_an_elastic_job,
    lost_host_returns_at_once,
    *(
        controller_killed(event, moment)
        for moment in ("shrinking", "growth")
        for event in ("generation_begun", "placement_decided", "restore_decided")
    ),
)
