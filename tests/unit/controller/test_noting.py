"""Wrong bits that are found when a job is being ended, or has ended: what is kept of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, RUNNING, begun, placement

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    RecordFenced,
    RecordFinished,
    RecoverJob,
    RestartJob,
    Verdict,
)
from everstep.controller.events import (
    DrainRequested,
    HostsFenced,
    IncidentNoted,
    JobFailed,
    JobStopped,
    JobSucceeded,
    PlacementDecided,
    StopRequested,
)
from everstep.core.corrections import PositionRange

JOBS = spec(AGGREGATE)
CORRUPT = "silent_corruption"
WRONG = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.REPLACE,
    hosts=("h1",),
    kind=CORRUPT,
    at_ms=50,
    before_step=50,
)
NOTED = IncidentNoted(
    job_id=JOB,
    generation=2,
    incident_id="i1",
    kind=CORRUPT,
    hosts=("h1",),
    before_step=50,
    at_ms=50,
)
STOPPING = JOBS.given(*RUNNING, StopRequested(job_id=JOB, at_ms=40), begun(2, "stop", 40))
STOPPED = (
    HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1")),
    JobStopped(job_id=JOB, generation=2, at_ms=45),
)
AGAIN = RestartJob(job_id=JOB, at_ms=90)


@pytest.mark.parametrize("ended", [(), STOPPED])
def test_wrong_bits_of_a_job_that_is_stopped_are_not_gone_on_from_later(ended):
    """Seed 84016: nothing but suspect states was left, and the restart waited for a person."""
    job = JOBS.given(*STOPPING.events, *ended)
    job.when(WRONG).then(NOTED)
    job.given(NOTED).when(WRONG).then()
    by_then = () if ended else STOPPED
    job.given(NOTED, *by_then).when(AGAIN).then(begun(4, "restart", 90, before_step=50))


def test_second_incident_of_a_stop_says_only_what_is_new():
    """The older suspicion is kept; who is named is out as well."""
    job = STOPPING.given(NOTED)
    second = replace(WRONG, generation=2, incident_id="i2", before_step=70, at_ms=60)
    job.when(second).then()
    other = replace(second, hosts=("h0",))
    job.when(other).then(replace(NOTED, incident_id="i2", hosts=("h0",), at_ms=60))
    older = replace(second, before_step=30)
    job.when(older).then(replace(NOTED, incident_id="i2", hosts=(), before_step=30, at_ms=60))


def test_incident_that_says_nothing_of_states_or_hosts_is_not_kept():
    """Those of older generations were heeded by the next one; a host that is gone is not wrong."""
    STOPPING.when(replace(WRONG, generation=0)).then()
    STOPPING.when(replace(WRONG, kind="host_lost", before_step=0)).then()
    undecided = replace(WRONG, verdict=Verdict.RESTART)
    STOPPING.when(undecided).then(replace(NOTED, hosts=()))


def test_batches_that_wrecked_a_job_that_is_stopped_are_left_out_later():
    """Once: a restart would train on them again."""
    batches = (PositionRange(first=80, end=90),)
    spike = replace(WRONG, verdict=Verdict.ROLL_BACK, kind="loss_spike", hosts=(), skipped=batches)
    noted = replace(NOTED, kind="loss_spike", hosts=(), skipped=batches)
    STOPPING.when(spike).then(noted)
    STOPPING.given(noted).when(spike).then()
    held = replace(spike, verdict=Verdict.HOLD)
    STOPPING.when(held).then(replace(noted, skipped=()))
    job = STOPPING.given(noted, *STOPPED).state
    assert (job.skipped, job.rollbacks, job.before_step) == (batches, (50,), 50)


def test_stop_whose_ranks_have_finished_is_no_success():
    """Whatever is heard of it meanwhile."""
    finished = RecordFinished(job_id=JOB, generation=1, step=10, at_ms=60)
    STOPPING.when(finished).then()
    STOPPING.given(NOTED).when(finished).then()


def test_host_that_is_wrong_is_out_although_the_job_succeeded():
    """It would serve the next one; the states are nobody's concern any more."""
    done = JobSucceeded(job_id=JOB, generation=1, step=10, at_ms=45)
    job = JOBS.given(*RUNNING, done)
    job.when(WRONG).then(replace(NOTED, generation=1, before_step=0))


def test_job_that_may_not_be_restarted_once_more_names_who_is_wrong():
    """It fails for its budget, and the host that it would have been placed without is free."""
    told = [begun(n, "recovery", 40) for n in (2, 3, 4)]
    job = JOBS.given(*RUNNING, *told)
    wrong = replace(WRONG, generation=4)
    noted, failed = job.when(wrong).decision.events
    assert noted == replace(NOTED, generation=4, before_step=0)
    assert isinstance(failed, JobFailed)
    assert failed.before_step == 50
    job.given(noted, failed).when(wrong).then()


@pytest.mark.parametrize("kind", [CORRUPT, "straggler"])
def test_host_that_a_job_was_to_leave_for_wrong_bits_is_out_when_it_ends(kind):
    """A slow one may serve others."""
    leaving = DrainRequested(job_id=JOB, hosts=("h1",), kind=kind, incident_id="i1", at_ms=30)
    job = JOBS.given(*RUNNING, leaving)
    noted = replace(NOTED, generation=1, incident_id="", before_step=0, at_ms=60)
    done = JobSucceeded(job_id=JOB, generation=1, step=10, at_ms=60)
    finished = RecordFinished(job_id=JOB, generation=1, step=10, at_ms=60)
    job.when(finished).then(*((noted,) if kind == CORRUPT else ()), done)


def test_host_that_is_wrong_is_out_when_its_job_is_stopped_before_it_is_placed_again():
    """What names it is the placement, and there is none any more."""
    back = begun(2, "recovery", 50, lost_hosts=("h1",), before_step=50, lost_why=CORRUPT)
    stop = begun(3, "stop", 60, before_step=50)
    fenced = HostsFenced(job_id=JOB, generation=3, hosts=("h0",), at_ms=70)
    stopped = JobStopped(job_id=JOB, generation=3, at_ms=70)
    told = RecordFenced(job_id=JOB, generation=3, hosts=("h0",), at_ms=70)
    noted = replace(NOTED, generation=3, incident_id="", before_step=0, at_ms=70)
    JOBS.given(*RUNNING, back, stop).when(told).then(fenced, noted, stopped)
    new = PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h2"))
    JOBS.given(*RUNNING, back, new, stop).when(told).then(fenced, stopped)
