"""Named stories of audits: a step of one replica that spare hosts do again, and what that tells."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.auditing import is_audit
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.host_inventory.state import HostState
from everstep.monitor.events import Action, Finding, StepAudited
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.corruption_stories import KIND, begin, lose_spares, replicas
from everstep.sim.elastic_stories import comes_back, is_running_with
from everstep.sim.recompute_stories import found
from everstep.sim.remaking import Flaw
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story
from everstep.sim.training import Training
from everstep.wire.v1.jobs_pb2 import PauseJob, ResumeJob

EVERY: Final = {"audit_every_checkpoints": 1}  # checkpoints of steps 10, 20, 30, ...
WRONG: Final = 13  # the first step that is made wrong; step 11 came out alike
AUDIT_S: Final = 300.0


async def audits(stage: Stage) -> list[StepAudited]:
    """Return what audits have come to so far."""
    return [one for one in await stage.events(MONITOR) if isinstance(one, StepAudited)]


async def audited(stage: Stage, finding: Finding) -> StepAudited:
    """Wait for the first audit that comes to this."""
    async with asyncio.timeout(AUDIT_S):
        while True:
            stored = stage.appended(MONITOR, "step_audited")
            seen = [one for one in await audits(stage) if one.finding is finding]
            if seen:
                return seen[0]
            await stored


def jobs_that_audit(stage: Stage) -> list[Job]:
    """Return the audits that have been launched, by id."""
    return [job for _, job in sorted(stage.invariants.jobs.items()) if is_audit(job)]


def free_hosts(stage: Stage) -> list[str]:
    """Return the spare hosts, by id."""
    hosts = stage.invariants.fleet.hosts
    return sorted(one for one, host in hosts.items() if host.state is HostState.SPARE)


async def audits_of_a_sound_job(stage: Stage) -> None:
    """Replica after replica is done again, all is alike, nobody is blamed, hosts are given back."""
    await begin(stage, replicas(2, corruption=EVERY))
    await stage.finish(1)
    told = await audits(stage)
    assert len(told) >= 3
    assert {one.finding for one in told} == {Finding.ALIKE}
    assert [one.replica for one in told[:3]] == [0, 1, 0]
    assert [one.step for one in told[:3]] == [10, 20, 30]
    serving = set(stage.hosts_of(JOB))
    assert all(serving.isdisjoint(one.hosts) for one in told)
    assert await stage.incidents(JOB) == []
    assert await stage.causes(JOB) == ["launch"]
    assert {job.phase for job in jobs_that_audit(stage)} == {Phase.SUCCEEDED}
    assert len(free_hosts(stage)) == len(stage.world.hosts)


async def wrong_work_that_an_audit_finds(stage: Stage) -> None:
    """Two replicas, and each time the same mistake: two spares say otherwise, one after the other.

    It goes back to the last step of that replica that came out alike, with the host replaced.
    """
    await begin(stage, replicas(2, corruption=EVERY))
    other, culprit = stage.hosts_of(JOB)
    await stage.step_reached(JOB, 32)  # step 21 of the second replica came out alike
    stage.world.flaws.hosts[culprit] = Flaw(first=33, repeats=True)
    named = await audited(stage, Finding.NAMED)
    assert (named.step, named.replica, named.number) == (40, 1, 2)
    assert named.ranks == (2,)
    await stage.running(JOB, 2)
    assert culprit not in stage.hosts_of(JOB)
    assert other in stage.hosts_of(JOB)
    cordon = stage.invariants.fleet.hosts[culprit].cordon
    assert cordon is not None
    assert cordon.reason == KIND
    [incident] = await found(stage)
    assert (incident.action, incident.hosts, incident.ranks) == (Action.REPLACE, (culprit,), (2,))
    assert incident.suspect_from_step == 21
    assert await stage.restores(JOB) == [-1, 20]
    findings = [one.finding for one in await audits(stage)]
    assert findings[:5] == [
        Finding.ALIKE,
        Finding.ALIKE,
        Finding.ALIKE,
        Finding.DIFFERS,
        Finding.NAMED,
    ]


async def wrong_work_of_the_only_replica(stage: Stage) -> None:
    """Nobody beside it could have made its work again: spares can."""
    await begin(stage, replicas(1, corruption=EVERY))
    [culprit] = stage.hosts_of(JOB)
    await stage.step_reached(JOB, 12)
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG, repeats=True)
    await stage.running(JOB, 2)
    assert stage.hosts_of(JOB) != [culprit]
    [incident] = await found(stage)
    assert (incident.action, incident.hosts) == (Action.REPLACE, (culprit,))
    assert await stage.restores(JOB) == [-1, 10]


async def job_that_is_paused_when_an_audit_names_its_host(stage: Stage) -> None:
    """It goes on from before the wrong step, elsewhere, when a person says so."""
    await begin(stage, replicas(1, corruption=EVERY))
    [culprit] = stage.hosts_of(JOB)
    await stage.step_reached(JOB, 12)
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG, repeats=True)
    await audited(stage, Finding.DIFFERS)
    await stage.until(
        lambda: jobs_that_audit(stage)[-1].phase not in TERMINAL, "another audit", limit_s=AUDIT_S
    )
    await stage.world.order(PauseJob(job_id=JOB, at_ms=stage.world.clock.now_ms()))
    named = await audited(stage, Finding.NAMED)
    assert named.ranks == (0,)
    assert stage.job(JOB).phase in {Phase.PAUSING, Phase.PAUSED}
    await stage.until(
        lambda: stage.invariants.fleet.hosts[culprit].cordon is not None, "out", limit_s=30
    )
    await stage.until(lambda: stage.job(JOB).phase is Phase.PAUSED, "paused", limit_s=AUDIT_S)
    await stage.world.order(ResumeJob(job_id=JOB, at_ms=stage.world.clock.now_ms()))
    await stage.running(JOB, 3)
    assert stage.hosts_of(JOB) != [culprit]
    [incident] = await found(stage)
    assert incident.action is Action.RESTART
    assert await stage.restores(JOB) == [-1, 10]


async def spare_that_computes_wrong_in_an_audit(stage: Stage) -> None:
    """The second one, on another host, comes to what the job had: the first one's host is out."""
    await begin(stage, replicas(2, corruption=EVERY))
    await stage.step_reached(JOB, 12)
    hosts = stage.hosts_of(JOB)
    culprit = free_hosts(stage)[0]
    stage.world.flaws.hosts[culprit] = Flaw(first=WRONG)
    named = await audited(stage, Finding.SPARE_NAMED)
    assert culprit in {*named.hosts, *(one for a in await audits(stage) for one in a.hosts)}
    await stage.until(
        lambda: stage.invariants.fleet.hosts[culprit].cordon is not None, "out", limit_s=30
    )
    assert stage.hosts_of(JOB) == hosts
    assert await stage.causes(JOB) == ["launch"]
    await stage.finish(1)
    assert await stage.incidents(JOB) == []


async def audit_that_nobody_can_make_twice(stage: Stage) -> None:
    """One spare: it differs from the job both times, which names neither; nothing is done."""
    await begin(stage, replicas(2, corruption=EVERY))
    hosts = stage.hosts_of(JOB)
    spares = free_hosts(stage)
    await lose_spares(stage, spares[1:])
    await stage.step_reached(JOB, 21)
    await audited(stage, Finding.ALIKE)
    training = stage.training(JOB)
    assert training is not None
    stage.world.flaws.hosts[hosts[1]] = Flaw(first=training.step + 1, repeats=True)
    left = await audited(stage, Finding.OPEN)
    assert left.replica == 1
    assert all(stage.invariants.fleet.hosts[one].cordon is None for one in (*hosts, spares[0]))
    assert await stage.causes(JOB) == ["launch"]
    await stage.finish(1)


async def audit_gives_way_to_a_job(stage: Stage) -> None:
    """A host is lost while the only spare does an audit: the job has it within seconds."""
    await begin(stage, replicas(2, corruption=EVERY))
    spares = free_hosts(stage)
    await lose_spares(stage, spares[1:])
    await stage.until(
        lambda: any(
            job.placed and job.phase is not Phase.SUCCEEDED for job in jobs_that_audit(stage)
        ),
        "an audit has hosts",
        limit_s=AUDIT_S,
    )
    lost = stage.hosts_of(JOB)[1]
    stage.world.power_off(lost)
    await stage.running(JOB, 2)
    assert spares[0] in stage.hosts_of(JOB)
    [*_, ended] = jobs_that_audit(stage)
    assert ended.phase is Phase.STOPPED
    await stage.finish(1)
    [incident] = await stage.incidents(JOB)
    assert incident.kind == "host_lost"


async def elastic_job_that_an_audit_has_the_only_spare_of(stage: Stage) -> None:
    """The audit would not end soon: the job goes on with all of its ranks, on the spare."""
    recovery = {"restarts_per_hour_max": 1_000, "no_spare": "elastic"}
    await begin(stage, replicas(2, corruption=EVERY, recovery=recovery))
    spares = free_hosts(stage)
    await lose_spares(stage, spares[1:])

    def stepping() -> Training | None:
        """Return the training of an audit that is under way."""
        under_way = [job for job in jobs_that_audit(stage) if job.phase not in TERMINAL]
        found = [stage.training(job.job_id) for job in under_way]
        return next((one for one in found if one is not None and one.stepping), None)

    await stage.until(stepping, "an audit makes its step", limit_s=AUDIT_S)
    training = stepping()
    assert training is not None
    training.moving.clear()
    stage.world.power_off(stage.hosts_of(JOB)[1])
    await stage.running(JOB, 2)
    assert spares[0] in stage.hosts_of(JOB)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "recovery"]


async def audits_of_a_job_that_was_smaller_for_a_while(stage: Stage) -> None:
    """With batches that scale it is at other samples since: the audits read the same ones."""
    recovery = {"restarts_per_hour_max": 1_000, "no_spare": "elastic", "elastic_batch": "scale"}
    data = {"path": "corpus", "sequence_tokens": 8, "global_batch": 8}
    await begin(stage, replicas(2, corruption=EVERY, recovery=recovery, data=data))
    await audited(stage, Finding.ALIKE)
    idle = free_hosts(stage)
    await lose_spares(stage, idle)
    stage.world.power_off(stage.hosts_of(JOB)[1])
    await is_running_with(stage, 2)
    await comes_back(stage, *idle)
    await is_running_with(stage, 4)
    before = len(await audits(stage))
    await stage.finish(1)
    told = await audits(stage)
    assert len(told) >= before + 2
    assert {one.finding for one in told} == {Finding.ALIKE}
    assert {one.kind for one in await stage.incidents(JOB)} == {"host_lost"}


async def audit_without_a_spare(stage: Stage) -> None:
    """It waits for nobody, and the job trains on."""
    await begin(stage, replicas(2, corruption=EVERY))
    await lose_spares(stage, free_hosts(stage))
    before = len(jobs_that_audit(stage))
    told = len(await audits(stage))
    training = stage.training(JOB)
    assert training is not None
    await stage.step_reached(JOB, training.step + 25)
    late = jobs_that_audit(stage)[before:]
    assert len(late) >= 2
    assert {job.phase for job in late} == {Phase.STOPPED}
    assert len(await audits(stage)) == told
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def audit_whose_host_is_lost(stage: Stage) -> None:
    """It is not begun again; the host is out, and the next checkpoint has an audit of its own."""
    await begin(stage, replicas(2, corruption=EVERY))
    await stage.until(
        lambda: any(job.started for job in jobs_that_audit(stage)), "an audit", limit_s=AUDIT_S
    )
    [job] = jobs_that_audit(stage)
    assert job.placement is not None
    [lost] = job.placement.host_ids
    stage.world.power_off(lost)
    await stage.until(
        lambda: stage.invariants.fleet.hosts[lost].cordon is not None, "found", limit_s=60
    )
    assert jobs_that_audit(stage)[0].phase in {Phase.FAILED, Phase.STOPPED}
    alike = await audited(stage, Finding.ALIKE)
    assert alike.step > 10
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def audit_that_a_new_monitor_hears_of(stage: Stage) -> None:
    """The one that asked is gone: what the audit's ranks come to is told by what is stored."""
    await begin(stage, replicas(2, corruption=EVERY))
    await stage.until(
        lambda: any(job.placed for job in jobs_that_audit(stage)), "an audit", limit_s=AUDIT_S
    )
    stage.world.services[MONITOR].kill()
    stage.world.services[MONITOR].start()
    told = await audited(stage, Finding.ALIKE)
    assert told.step == 10
    await stage.finish(1)
    assert await stage.incidents(JOB) == []


STORIES: Final[tuple[Story, ...]] = (
    audits_of_a_sound_job,
    wrong_work_that_an_audit_finds,
    wrong_work_of_the_only_replica,
    job_that_is_paused_when_an_audit_names_its_host,
    spare_that_computes_wrong_in_an_audit,
    audit_that_nobody_can_make_twice,
    audit_gives_way_to_a_job,
    elastic_job_that_an_audit_has_the_only_spare_of,
    audits_of_a_job_that_was_smaller_for_a_while,
    audit_without_a_spare,
    audit_whose_host_is_lost,
    audit_that_a_new_monitor_hears_of,
)
