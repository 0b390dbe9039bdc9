"""A host that holds wrong bits is replaced; what came since the last sound state is not used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, RUNNING, begun

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import RecordLost, RecoverJob, Verdict
from everstep.controller.events import HostsFenced, IncidentNoted, RestoreDecided

JOBS = spec(AGGREGATE)
WRONG = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.REPLACE,
    hosts=("h1",),
    kind="silent_corruption",
    reason="rank 3 agrees with nobody",
    at_ms=50,
    before_step=50,
)
REPLACED = begun(
    2,
    "recovery",
    50,
    incident_id="i1",
    lost_hosts=("h1",),
    before_step=50,
    lost_why="silent_corruption",
)


def test_wrong_host_is_lost_and_its_steps_are_not_restored():
    """No batch is left out: the same ones are trained again."""
    JOBS.given(*RUNNING).when(WRONG).then(REPLACED)
    job = JOBS.given(*RUNNING, REPLACED).state
    assert (job.lost_hosts, job.lost_why, job.before_step) == (("h1",), "silent_corruption", 50)
    assert (job.skipped, job.rollbacks) == ((), ())


@pytest.mark.parametrize("cause", ["drain", "grow"])
def test_wrong_bits_that_are_found_while_the_job_moves_are_gone_back_behind(cause):
    """Seed 81340: the move went on, nothing but suspect states was left, and the job hung."""
    moving = JOBS.given(*RUNNING, begun(2, cause, 40))
    moving.when(WRONG).then(replace(REPLACED, generation=3))
    moving.given(replace(REPLACED, generation=3)).when(WRONG).then()
    inconclusive = replace(WRONG, verdict=Verdict.RESTART)
    moving.when(inconclusive).then(begun(3, "recovery", 50, incident_id="i1", before_step=50))
    moving.when(replace(inconclusive, before_step=0)).then()


def test_move_that_went_on_from_before_the_wrong_bits_does_not_go_back_once_more():
    """The registry had heard of them when it made the plan; the host is out all the same."""
    before = RestoreDecided(job_id=JOB, generation=2, step=WRONG.before_step - 1)
    moved = JOBS.given(*RUNNING, begun(2, "grow", 40), before)
    moved.when(WRONG).then(replace(REPLACED, generation=3, before_step=0))
    moved.when(replace(WRONG, verdict=Verdict.RESTART)).then()
    after = JOBS.given(*RUNNING, begun(2, "grow", 40), replace(before, step=WRONG.before_step))
    after.when(WRONG).then(replace(REPLACED, generation=3))


def test_wrong_bits_that_are_found_while_the_job_is_paused_are_not_resumed_from():
    """It stays paused, and what it is held for is known already; the wrong host is out."""
    pausing = JOBS.given(*RUNNING, begun(2, "pause", 40))
    noted = IncidentNoted(
        job_id=JOB,
        generation=2,
        incident_id="i1",
        kind="silent_corruption",
        hosts=("h1",),
        at_ms=50,
    )
    paused = begun(3, "pause", 50, incident_id="i1", before_step=50)
    pausing.when(WRONG).then(noted, paused)
    pausing.when(replace(WRONG, verdict=Verdict.RESTART)).then(paused)
    hold = replace(WRONG, verdict=Verdict.HOLD)
    held = JOBS.given(*RUNNING).when(hold).decision.events
    JOBS.given(*RUNNING, *held).when(hold).then()


def test_host_that_is_gone_has_done_nothing():
    """Only a person brings back who was wrong; who was lost comes back by itself."""
    JOBS.given(*RUNNING).when(replace(WRONG, kind="host_lost", before_step=0)).then(
        begun(2, "recovery", 50, incident_id="i1", lost_hosts=("h1",))
    )


def test_nobody_is_lost_where_nobody_is_named():
    """The run goes back all the same."""
    JOBS.given(*RUNNING).when(replace(WRONG, verdict=Verdict.RESTART)).then(
        begun(2, "recovery", 50, incident_id="i1", before_step=50)
    )


def test_host_lost_on_the_way_makes_the_wrong_one_no_better():
    """It stays out for the same reason, and the same states stay suspect."""
    lost = RecordLost(job_id=JOB, generation=2, hosts=("h0",), at_ms=55)
    fenced = HostsFenced(job_id=JOB, generation=2, hosts=("h0",))
    given = JOBS.given(*RUNNING, REPLACED, fenced)
    state = given.given(*given.when(lost).decision.events).state
    assert state.lost_hosts == ("h0", "h1")
    assert (state.lost_why, state.before_step) == ("silent_corruption", 50)


def test_older_suspicion_is_kept():
    """A second incident while it comes up may say less, and never makes newer states good."""
    second = replace(WRONG, generation=2, incident_id="i2", hosts=("h0",), before_step=70)
    given = JOBS.given(*RUNNING, REPLACED)
    (event,) = given.when(second).decision.events
    assert (event.before_step, event.lost_hosts) == (50, ("h0",))
    assert given.given(event).state.lost_hosts == ("h0", "h1")
