"""Named stories: what must survive, and every fault of the services that the swarm has found.

Each is a few lines of what happens, then what must have come of it. The invariants are watched all
along; a scenario adds what only it can know (how many incidents, from which step).
"""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.stage import STEPS, Stage, spec_of
from everstep.sim.stories import STORIES
from everstep.sim.telling import JOB, Story, launch, one_recovery, step_of
from everstep.sim.training import Pace
from everstep.wire.v1 import jobs_pb2

# What the controller stores in a recovery, in about this order.
RECOVERY: Final = (
    "generation_begun",
    "hosts_fenced",
    "placement_decided",
    "restore_decided",
    "ranks_started",
)


async def undisturbed(stage: Stage) -> None:
    """Nothing happens."""
    await launch(stage)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def rank_killed(stage: Stage) -> None:
    """One rank dies: the same hosts go on, and no step is lost."""
    await launch(stage)
    await stage.step_reached(JOB, 20)
    stage.world.hosts[stage.hosts_of(JOB)[1]].kill_rank(2)
    await one_recovery(stage, "rank_killed", step_of(stage))


async def rank_stopped(stage: Stage) -> None:
    """One rank stands still and nothing fails: it is found by the stacks of all, within 15 s."""
    await _one_is_stopped(stage, 20, within_ms=15_000)


async def rank_stopped_in_a_long_step(stage: Stage) -> None:
    """Ten steps would be too long: the others' collectives fail after two minutes."""
    stage.world.pace = Pace(step_s=15.0)
    await _one_is_stopped(stage, 4, within_ms=120_000)


async def _one_is_stopped(stage: Stage, after_step: int, *, within_ms: int) -> None:
    await launch(stage)
    await stage.step_reached(JOB, after_step)
    opened = stage.appended(MONITOR, "incident_opened")
    at_ms, step = stage.world.now_ms, step_of(stage)
    stage.world.hosts[stage.hosts_of(JOB)[1]].stop_rank(2)
    stage.world.pace = Pace()
    await opened
    assert stage.world.now_ms - at_ms <= within_ms, stage.world.now_ms - at_ms
    await one_recovery(stage, "rank_stopped", step)
    [incident] = await stage.incidents(JOB)
    assert incident.ranks == (2,), incident


async def host_lost(stage: Stage) -> None:
    """A machine dies: a spare takes over, at most one step is lost."""
    await launch(stage)
    await stage.step_reached(JOB, 20)
    lost = stage.hosts_of(JOB)[1]
    stage.world.power_off(lost)
    await one_recovery(stage, "host_lost", step_of(stage))
    assert lost not in stage.hosts_of(JOB)


async def host_lost_during_recovery(stage: Stage) -> None:
    """A second machine dies while the first one's loss is put right."""
    await launch(stage)
    await stage.step_reached(JOB, 20)
    first, second = stage.hosts_of(JOB)[:2]
    stage.world.power_off(first)
    await asyncio.sleep(0.5)
    stage.world.power_off(second)
    await stage.running(JOB, 3)
    await stage.finish(1)


def controller_killed_after(event: str) -> Story:
    """Return the story of a controller that dies right after it has stored ``event``."""

    async def story(stage: Stage) -> None:
        world = stage.world
        await launch(stage)
        await stage.step_reached(JOB, 20)
        stored = stage.appended(CONTROLLER, event)
        world.power_off(stage.hosts_of(JOB)[2])
        step = step_of(stage)
        await stored
        world.services[CONTROLLER].kill()
        await asyncio.sleep(3.0)
        world.services[CONTROLLER].start()
        await one_recovery(stage, "host_lost", step)

    return story


async def bus_restarted(stage: Stage) -> None:
    """The bus goes away while a job trains: nothing is judged, nothing is restarted."""
    await launch(stage)
    await stage.step_reached(JOB, 10)
    await stage.world.network.restart_server(10.0)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]
    assert await stage.incidents(JOB) == []


async def agent_killed(stage: Stage) -> None:
    """An agent alone dies: its ranks train on."""
    await launch(stage)
    await stage.step_reached(JOB, 20)
    host_id = stage.hosts_of(JOB)[0]
    agent = stage.world.hosts[host_id].agent
    assert agent is not None
    agent.kill()
    await asyncio.sleep(8.0)
    stage.world.start_agent(host_id)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def no_spare(stage: Stage) -> None:
    """No spare is left: the job waits and goes on when a host joins."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 15)
    idle = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    lost = stage.hosts_of(JOB)[0]
    for host_id in (*idle, lost):
        world.power_off(host_id)
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(60.0)
    world.power_on(idle[0])
    await asyncio.sleep(1.0)
    await stage.clear()  # it was cordoned when it was found dead
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert max(await stage.restores(JOB)) >= 14


async def owner_and_holder_lost(stage: Stage) -> None:
    """A host and the one that keeps its replicas die together: back to the object store."""
    await launch(stage)
    await stage.stored(JOB, 20)
    training = stage.training(JOB)
    assert training is not None
    owner = stage.hosts_of(JOB)[0]
    holder = training.runs[owner].placement.replica_host_id
    stage.world.power_off(owner)
    stage.world.power_off(holder)
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert (await stage.restores(JOB))[-1] == 20


async def objects_away_in_restore(stage: Stage) -> None:
    """The object store is away when it is needed: it is waited for, and nothing is distrusted."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    world.objects.up = False
    for host_id in stage.hosts_of(JOB)[:3]:
        world.power_off(host_id)
        world.power_on(host_id)
    await asyncio.sleep(30.0)
    world.objects.up = True
    await stage.finish(1)
    restores = await stage.restores(JOB)
    assert set(restores[1:]) == {20}, restores


async def bad_copies(stage: Stage) -> None:
    """Both copies of a rank's newest step are bad: an older step, and no endless loop."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 20)
    await asyncio.sleep(0.5)
    for host in world.hosts.values():
        for key, copies in host.memory.slots.items():
            if key[1] == 0:
                for copy in copies:
                    host.memory.spoil(key, copy.step)
    world.hosts[stage.hosts_of(JOB)[1]].kill_rank(3)
    await stage.running(JOB, 3, limit_s=60)
    await stage.finish(1)
    assert (await stage.restores(JOB))[-1] == 20
    assert len(await stage.causes(JOB)) <= 4


async def replica_behind(stage: Stage) -> None:
    """Replication stands still for a while, then a host dies: a common step is still in memory.

    The two-slot rule: without it, survivors would run ahead of the dead host's replica.
    """
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 25)
    training = stage.training(JOB)
    assert training is not None
    owner = stage.hosts_of(JOB)[0]
    holder = world.hosts[training.runs[owner].placement.replica_host_id]
    assert holder.agent is not None
    holder.agent.kill()
    await asyncio.sleep(6.0)
    assert training.step > training.runs[owner].held_step + 2, "nothing was held back"
    world.start_agent(holder.host_id)
    world.power_off(owner)
    await stage.running(JOB, 2)
    await stage.finish(1)
    assert (await stage.restores(JOB))[-1] >= 24


async def cut_from_the_bus(stage: Stage) -> None:
    """A host cannot be reached, but its job steps on: only an agent is away."""
    await launch(stage)
    await stage.step_reached(JOB, 10)
    agent = stage.world.hosts[stage.hosts_of(JOB)[1]].agent
    assert agent is not None
    agent.endpoint.cut()
    await asyncio.sleep(20.0)
    agent.endpoint.mend()
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def cut_off(stage: Stage) -> None:
    """A host is cut from the bus and from its peers: one incident, and no late writes."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 10)
    host_id = stage.hosts_of(JOB)[1]
    agent = world.hosts[host_id].agent
    assert agent is not None
    agent.endpoint.cut()
    world.cut_peers(host_id)
    await stage.running(JOB, 2)
    agent.endpoint.mend()
    world.mend_peers(host_id)
    await stage.finish(1)
    [incident] = await stage.incidents(JOB)
    assert (incident.kind, incident.hosts) == ("host_lost", (host_id,))


async def lost_after_the_last_step(stage: Stage) -> None:
    """Found by seed 29: with no step left to make, the incident was never closed."""
    await launch(stage)
    await stage.step_reached(JOB, STEPS)
    stage.world.power_off(stage.hosts_of(JOB)[1])
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "recovery"]


async def lost_before_the_last_word(stage: Stage) -> None:
    """Found by seed 157: a host of a run that had finished opened an incident."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, STEPS - 2)
    world.services[CONTROLLER].kill()
    watch = stage.invariants.watches
    await stage.until(
        lambda: watch[f"watch-{JOB}"].finished_generation == 1, "finished", limit_s=60
    )
    world.power_off(stage.hosts_of(JOB)[0])
    await asyncio.sleep(10.0)
    world.services[CONTROLLER].start()
    await stage.finish(1)
    assert await stage.incidents(JOB) == []


async def ends_wait_for_the_database(stage: Stage) -> None:
    """Found by seed 24: ranks whose ends could not be stored yet were taken for vanished."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, STEPS - 3)
    world.backing.databases[MONITOR].up = False
    await asyncio.sleep(20.0)
    world.backing.databases[MONITOR].up = True
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def restart_from_an_abandoned_step(stage: Stage) -> None:
    """Found by seed 3: a step of a history that was given up was asked for, and the job failed."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 30)
    at_ms = world.clock.now_ms()
    await world.order(jobs_pb2.RestartJob(job_id=JOB, from_step=20, at_ms=at_ms))
    await stage.running(JOB, 2)
    reply = await world.order(jobs_pb2.RestartJob(job_id=JOB, from_step=30, at_ms=at_ms))
    assert reply.outcome.why == "no_such_step", reply.outcome
    await stage.finish(1)
    assert await stage.restores(JOB) == [-1, 20]


async def loss_after_a_roll_back(stage: Stage) -> None:
    """A person goes back a while, then hosts die: nothing of the old future comes back."""
    world = stage.world
    await launch(stage)
    await stage.stored(JOB, 30)
    at_ms = world.clock.now_ms()
    await world.order(jobs_pb2.RestartJob(job_id=JOB, from_step=20, at_ms=at_ms))
    await stage.running(JOB, 2)
    await stage.step_reached(JOB, 24)
    owner = stage.hosts_of(JOB)[0]
    training = stage.training(JOB)
    assert training is not None
    world.power_off(training.runs[owner].placement.replica_host_id)
    world.power_off(owner)
    await stage.running(JOB, 3)
    await stage.finish(1)
    assert (await stage.restores(JOB))[-1] == 20


async def all_agents_of_a_job_away(stage: Stage) -> None:
    """Found by seed 723: nothing breaks a run whose agents are all away; it was never ended.

    It is taken for lost and goes on elsewhere, while the old ranks train on: harmless, because
    nothing that they write counts, but somebody has to end them when their agents are back.
    """
    world = stage.world
    await stage.up()
    world.launched.append(JOB)
    await world.launch(JOB, spec_of(1))
    await stage.step_reached(JOB, 20)
    hosts = stage.hosts_of(JOB)
    for host_id in hosts:
        agent = world.hosts[host_id].agent
        assert agent is not None
        agent.kill()
    await stage.running(JOB, 2)
    old = world.trainings[JOB, 1]
    assert old.stepping, "the old ranks were broken by something else"
    for host_id in hosts:
        world.start_agent(host_id)
    await stage.until(lambda: old.broken, "old ranks ended", limit_s=15.0)
    await stage.finish(1)


SCENARIOS: Final[dict[str, Story]] = {
    story.__name__: story
    for story in (
        undisturbed,
        rank_killed,
        rank_stopped,
        rank_stopped_in_a_long_step,
        host_lost,
        host_lost_during_recovery,
        bus_restarted,
        agent_killed,
        no_spare,
        owner_and_holder_lost,
        objects_away_in_restore,
        bad_copies,
        replica_behind,
        cut_from_the_bus,
        cut_off,
        lost_after_the_last_step,
        lost_before_the_last_word,
        ends_wait_for_the_database,
        restart_from_an_abandoned_step,
        loss_after_a_roll_back,
        all_agents_of_a_job_away,
        *STORIES,
    )
} | {f"controller_killed_after_{event}": controller_killed_after(event) for event in RECOVERY}
