"""What a job was to go on from is the same after a pause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, RUNNING, begun

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import PauseJob, RecoverJob, ResumeJob, StopJob, Verdict
from everstep.controller.events import (
    HostsShort,
    JobPaused,
    JobRunning,
    PauseRequested,
    RestoreDecided,
    StopRequested,
)

JOBS = spec(AGGREGATE)
RESTARTED = (*RUNNING, begun(2, "restart", from_step=4))
SHORT = HostsShort(job_id=JOB, generation=2, missing=1, at_ms=1)
PLANNED = RestoreDecided(job_id=JOB, generation=2, step=4)
PAUSE = PauseJob(job_id=JOB, at_ms=5)
REQUESTED = PauseRequested(job_id=JOB, at_ms=5)
PAUSED = JobPaused(job_id=JOB, generation=3, at_ms=6)
RESUME = ResumeJob(job_id=JOB, at_ms=9)


@pytest.mark.parametrize(("on_the_way", "step"), [(SHORT, 4), (PLANNED, -1)])
def test_step_that_a_person_named_outlives_a_pause_until_it_is_planned(on_the_way, step):
    """Also a second pause, of the job that was resumed and has no plan again."""
    given = JOBS.given(*RESTARTED, on_the_way)
    paused = begun(3, "pause", 5, from_step=step)
    given.when(PAUSE).then(REQUESTED, paused)
    given = given.given(REQUESTED, paused, PAUSED)
    resumed = begun(4, "resume", 9, from_step=step)
    given.when(RESUME).then(resumed)
    again = begun(5, "pause", 5, from_step=step)
    given.given(resumed).when(PAUSE).then(REQUESTED, again)


def test_step_that_a_person_named_outlives_a_hold():
    """Whoever looks at the job then has not changed the wish."""
    hold = RecoverJob(
        job_id=JOB,
        generation=2,
        incident_id="i1",
        verdict=Verdict.HOLD,
        reason="so",
        before_step=3,
        at_ms=5,
    )
    held = replace(REQUESTED, incident_id="i1", why="so")
    paused = begun(3, "pause", 5, from_step=4, incident_id="i1", before_step=3, remark="held: so")
    JOBS.given(*RESTARTED, SHORT).when(hold).then(held, paused)
    resumed = begun(4, "resume", 9, from_step=4, before_step=3)
    JOBS.given(*RESTARTED, SHORT, held, paused, PAUSED).when(RESUME).then(resumed)


def test_what_was_found_since_a_person_named_a_step_outlives_a_pause():
    """Only states from before it will do, whichever the person wanted."""
    back = begun(3, "recovery", 4, from_step=4, before_step=3)
    paused = begun(4, "pause", 5, from_step=4, before_step=3)
    JOBS.given(*RESTARTED, back).when(PAUSE).then(REQUESTED, paused)


def test_job_that_has_run_since_a_person_named_a_step_goes_on_from_the_newest():
    """A wish that was fulfilled is over."""
    running = JobRunning(job_id=JOB, generation=2, step=5, at_ms=4)
    given = JOBS.given(*RESTARTED, PLANNED, running)
    given.when(PAUSE).then(REQUESTED, begun(3, "pause", 5))


def test_stop_leaves_nothing_to_go_on_from():
    """Whoever restarts the job says from where."""
    stop = StopJob(job_id=JOB, at_ms=5)
    stopping = (StopRequested(job_id=JOB, at_ms=5), begun(3, "stop", 5))
    JOBS.given(*RESTARTED, SHORT).when(stop).then(*stopping)
