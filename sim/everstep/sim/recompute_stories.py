"""Named stories of chips that compute wrong: found by doing work twice, and gone back behind."""

from __future__ import annotations

from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.monitor.events import Action, IncidentOpened
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.corruption_stories import begin, lose_spares, replicas
from everstep.sim.corruption_stories import found as found_in_the_end
from everstep.sim.remaking import Flaw
from everstep.sim.stage import STEPS, Stage
from everstep.sim.telling import JOB, Story
from everstep.wire.v1 import jobs_pb2

EVERY: Final = {"recompute_every_steps": 10}
WRONG: Final = 24  # the first step that is made wrong; steps 10 and 20 came out alike
FOUND: Final = 30


async def found(stage: Stage, count: int = 1) -> list[IncidentOpened]:
    """Wait for the end; no flawed chip had a hand in the state. Returns what was found."""
    incidents = await found_in_the_end(stage, count)
    training = stage.training(JOB)
    assert training is not None
    assert training.state not in stage.world.flaws.tainted, "it ended with a tainted state"
    return incidents


async def wrong_work(stage: Stage) -> None:
    """One of three replicas: its host is out, and all since the last comparison is made again."""
    await begin(stage, replicas(3, corruption=EVERY))
    culprit = stage.hosts_of(JOB)[1]
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG)
    await stage.running(JOB, 2)
    assert culprit not in stage.hosts_of(JOB)
    [incident] = await found(stage)
    assert (incident.action, incident.hosts, incident.ranks) == (Action.REPLACE, (culprit,), (2,))
    assert (incident.step, incident.suspect_from_step) == (FOUND, 21)
    assert await stage.restores(JOB) == [-1, 20]


async def wrong_work_in_the_last_steps(stage: Stage) -> None:
    """The run is not over before somebody has looked at what it ends with."""
    await begin(stage, replicas(3, corruption=EVERY))
    culprit = stage.hosts_of(JOB)[1]
    stage.world.flaws.hosts[culprit] = Flaw(first=STEPS - 3)
    await stage.running(JOB, 2)
    [incident] = await found(stage)
    assert (incident.hosts, incident.step) == ((culprit,), STEPS)
    assert await stage.restores(JOB) == [-1, STEPS - 10]


async def wrong_work_and_saves_in_a_row(stage: Stage) -> None:
    """The last checkpoint is from after it began; one from before is kept."""
    often = {"object_every_steps": 3, "keep_last": 1}
    await begin(stage, replicas(3, corruption=EVERY, checkpoint=often))
    culprit = stage.hosts_of(JOB)[1]
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG)
    await stage.running(JOB, 2)
    await found(stage)
    assert await stage.restores(JOB) == [-1, 3]


async def wrong_work_once(stage: Stage) -> None:
    """It does not come again in other pairs: only the step that is made again tells who it was."""
    await begin(stage, replicas(3, corruption=EVERY))
    hosts = stage.hosts_of(JOB)
    stage.world.flaws.hosts[hosts[2]] = Flaw(first=FOUND, last=FOUND, half=True, generation=1)
    await stage.running(JOB, 2)
    assert stage.hosts_of(JOB) == hosts
    await stage.running(JOB, 3)
    assert set(stage.hosts_of(JOB)) >= set(hosts[:2])
    assert hosts[2] not in stage.hosts_of(JOB)
    first, second = await found(stage, 2)
    assert first.action is Action.RESTART
    assert hosts[2] in first.hosts
    assert len(first.hosts) == 2
    assert (second.action, second.hosts) == (Action.DRAIN, (hosts[2],))
    restores = await stage.restores(JOB)
    assert restores[:2] == [-1, FOUND - 2]
    assert restores[2] >= FOUND


async def wrong_work_once_that_a_new_monitor_knows_of(stage: Stage) -> None:
    """The one that saw it is gone before the step is made again; what each had was stored."""
    await begin(stage, replicas(3, corruption=EVERY))
    hosts = stage.hosts_of(JOB)
    stage.world.flaws.hosts[hosts[2]] = Flaw(first=FOUND, last=FOUND, half=True, generation=1)
    await stage.appended(CONTROLLER, "generation_begun")
    stage.world.services[MONITOR].kill()
    stage.world.services[MONITOR].start()
    first, second = await found(stage, 2)
    assert first.action is Action.RESTART
    assert (second.action, second.hosts) == (Action.DRAIN, (hosts[2],))


async def wrong_work_of_one_of_two_that_contradicts_itself(stage: Stage) -> None:
    """It makes its own work again, and not the same mistake."""
    await begin(stage, replicas(2, corruption=EVERY))
    _, culprit = stage.hosts_of(JOB)
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG)
    await stage.running(JOB, 2)
    assert culprit not in stage.hosts_of(JOB)
    [incident] = await found(stage)
    assert (incident.action, incident.hosts) == (Action.REPLACE, (culprit,))
    assert await stage.restores(JOB) == [-1, 20]


async def wrong_work_of_one_of_two(stage: Stage) -> None:
    """A tie, and a tie again: then a spare does the work a third time, and that tells."""
    await begin(stage, replicas(2, corruption=EVERY))
    hosts = stage.hosts_of(JOB)
    other, culprit = hosts
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG, repeats=True)
    await stage.running(JOB, 2)
    assert stage.hosts_of(JOB) == hosts
    await stage.running(JOB, 3)
    assert other not in stage.hosts_of(JOB)
    await stage.running(JOB, 4)
    assert culprit not in stage.hosts_of(JOB)
    incidents = await found(stage, 3)
    assert [one.action for one in incidents] == [
        Action.RESTART,
        Action.REPLACE_IF_SPARE,
        Action.REPLACE,
    ]
    assert incidents[-1].hosts == (culprit,)


async def wrong_work_of_one_of_two_that_a_new_monitor_finds_again(stage: Stage) -> None:
    """The one that saw the first tie is gone: the second one is the second all the same."""
    await begin(stage, replicas(2, corruption=EVERY))
    other, culprit = stage.hosts_of(JOB)
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG, repeats=True)
    await stage.running(JOB, 2)
    stage.world.services[MONITOR].kill()
    stage.world.services[MONITOR].start()
    await stage.running(JOB, 3)
    assert other not in stage.hosts_of(JOB)
    await stage.running(JOB, 4)
    incidents = await found(stage, 3)
    assert [one.action for one in incidents] == [
        Action.RESTART,
        Action.REPLACE_IF_SPARE,
        Action.REPLACE,
    ]
    assert incidents[-1].hosts == (culprit,)


async def wrong_work_again_without_a_spare(stage: Stage) -> None:
    """Two replicas, no third place: in the end somebody has to look."""
    await begin(stage, replicas(2, corruption=EVERY))
    hosts = stage.hosts_of(JOB)
    spares = sorted(set(stage.world.hosts) - set(hosts))
    await lose_spares(stage, spares)
    await stage.step_reached(JOB, 11)
    training = stage.training(JOB)
    assert training is not None
    stage.world.flaws.hosts[hosts[0]] = Flaw(first=training.step + 1, repeats=True)
    await stage.until(lambda: stage.job(JOB).phase == "paused", "held", limit_s=600)
    assert stage.hosts_of(JOB) == hosts
    stage.world.flaws.hosts.clear()  # somebody has looked, and mended it
    at_ms = stage.world.clock.now_ms()
    await stage.world.order(jobs_pb2.ResumeJob(job_id=JOB, at_ms=at_ms))
    incidents = await found(stage, 3)
    assert [one.action for one in incidents] == [
        Action.RESTART,
        Action.REPLACE_IF_SPARE,
        Action.HOLD,
    ]


async def activation_that_differs_when_it_is_made_again(stage: Stage) -> None:
    """The rank itself shows it, at once, whatever the others do."""
    await begin(stage, replicas(2))
    culprit = stage.hosts_of(JOB)[0]
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG, last=WRONG, itself=True)
    await stage.running(JOB, 2)
    assert culprit not in stage.hosts_of(JOB)
    [incident] = await found(stage)
    assert (incident.action, incident.hosts) == (Action.REPLACE, (culprit,))
    assert incident.suspect_from_step == WRONG


async def wrong_work_where_bits_may_vary(stage: Stage) -> None:
    """A job that does not ask for kernels that repeat their bits is only told of it."""
    spec = replicas(3, corruption=EVERY, deterministic=False)
    await begin(stage, spec)
    stage.world.flaws.hosts[stage.hosts_of(JOB)[1]] = Flaw(first=WRONG)
    await stage.appended(MONITOR, "incident_opened")
    await stage.finish(1)
    incidents = await stage.incidents(JOB)
    assert {(one.kind, one.action) for one in incidents} == {("recompute_differs", Action.NOTE)}
    assert await stage.causes(JOB) == ["launch"]


STORIES: Final[tuple[Story, ...]] = (
    wrong_work,
    wrong_work_in_the_last_steps,
    wrong_work_and_saves_in_a_row,
    wrong_work_once,
    wrong_work_once_that_a_new_monitor_knows_of,
    wrong_work_of_one_of_two_that_contradicts_itself,
    wrong_work_of_one_of_two,
    wrong_work_of_one_of_two_that_a_new_monitor_finds_again,
    wrong_work_again_without_a_spare,
    activation_that_differs_when_it_is_made_again,
    wrong_work_where_bits_may_vary,
)
