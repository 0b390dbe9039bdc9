"""Going back before a suspect state, leaving batches out, and holding for a person."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, PLACED_1, RUNNING, SPEC, SUBMITTED, begun, placement

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    RecordLost,
    RecordProgress,
    RecordRefused,
    RecoverJob,
    RestartJob,
    ResumeJob,
    Verdict,
)
from everstep.controller.correcting import corrections_of
from everstep.controller.events import (
    HostsFenced,
    JobFailed,
    JobPaused,
    JobRunning,
    PauseRequested,
    PlacementDecided,
    RestoreDecided,
)
from everstep.controller.starting import start_commands
from everstep.controller.state import Phase
from everstep.core.corrections import Corrections, PositionRange, RateSpan
from everstep.wire.v1.checkpoints_pb2 import RestoreSources

JOBS = spec(AGGREGATE)
SKIPPED = (PositionRange(first=49, end=53),)
SPIKE = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.ROLL_BACK,
    kind="loss_spike",
    reason="the loss has been raised since step 51",
    at_ms=50,
    before_step=50,
    skipped=SKIPPED,
)
BACK = begun(2, "recovery", 50, incident_id="i1", before_step=50, skipped=SKIPPED)
HELD = begun(
    2,
    "pause",
    50,
    incident_id="i1",
    before_step=50,
    remark="held: the loss has been raised since step 51; `everstep jobs resume --skip-batches` "
    "goes on without batches 49 to 52",
)
REQUESTED = PauseRequested(
    job_id=JOB, at_ms=50, incident_id="i1", why=SPIKE.reason, questioned=SKIPPED
)
UP_2 = (
    HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1")),
    PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h1")),
    RestoreDecided(job_id=JOB, generation=2, step=40),
)
RUNNING_2 = JobRunning(job_id=JOB, generation=2, step=41, at_ms=60)


def test_spike_begins_a_generation_before_it_without_its_batches():
    """The same hosts go on: no machine is to blame."""
    JOBS.given(*RUNNING).when(SPIKE).then(BACK)
    job = JOBS.given(*RUNNING, BACK).state
    assert (job.phase, job.before_step, job.skipped) == (Phase.RECOVERING, 50, SKIPPED)
    assert job.lost_hosts == ()


@pytest.mark.parametrize("cause", ["pause", "drain", "grow"])
def test_spike_that_is_found_while_its_generation_is_left_is_gone_back_behind(cause):
    """A pause stays one, and what the job goes on from then leaves its batches out; once."""
    leaving = begun(2, cause, 40)
    back = "pause" if cause == "pause" else "recovery"
    again = begun(3, back, 50, incident_id="i1", before_step=50, skipped=SKIPPED)
    JOBS.given(*RUNNING, leaving).when(SPIKE).then(again)
    JOBS.given(*RUNNING, leaving, again).when(SPIKE).then()
    JOBS.given(*RUNNING, leaving).when(replace(SPIKE, verdict=Verdict.RESTART)).then()


def test_note_changes_nothing():
    """The run goes on."""
    JOBS.given(*RUNNING).when(replace(SPIKE, verdict=Verdict.NOTE)).then()


def test_host_that_is_lost_on_the_way_back_does_not_make_the_suspect_state_good():
    """Until the run goes on from before it, only older states will do."""
    given = JOBS.given(*RUNNING, BACK)
    lost = RecordLost(job_id=JOB, generation=2, hosts=("h1",), at_ms=55)
    given.when(lost).then(begun(3, "recovery", 55, lost_hosts=("h1",), before_step=50))
    after = given.given(begun(3, "recovery", 55, lost_hosts=("h1",), before_step=50)).state
    assert (after.before_step, after.skipped, after.rollbacks) == (50, SKIPPED, (50,))


def test_run_that_has_gone_back_may_go_on_from_its_new_states():
    """What lies beyond is made again, without the batches; they stay left out."""
    given = JOBS.given(*RUNNING, BACK, *UP_2)
    given.when(RecordProgress(job_id=JOB, generation=2, step=41, at_ms=60)).then(RUNNING_2)
    job = given.given(RUNNING_2).state
    assert (job.before_step, job.skipped) == (0, SKIPPED)
    killed = replace(SPIKE, generation=2, verdict=Verdict.RESTART, incident_id="i2", at_ms=70)
    given.given(RUNNING_2).when(killed).then(begun(3, "recovery", 70, incident_id="i2"))


def test_person_who_names_a_step_knows_what_it_is_worth():
    """Also on the way back."""
    restart = RestartJob(job_id=JOB, from_step=52, at_ms=58)
    JOBS.given(*RUNNING, BACK).when(restart).then(begun(3, "restart", 58, from_step=52))


def test_hold_pauses_and_says_why():
    """Nobody is paged by a job that only looks paused."""
    hold = replace(SPIKE, verdict=Verdict.HOLD)
    JOBS.given(*RUNNING).when(hold).then(REQUESTED, HELD)
    assert JOBS.given(*RUNNING, REQUESTED, HELD).state.phase is Phase.PAUSING


@pytest.mark.parametrize(("found", "before"), [(0, 50), (60, 50), (40, 40)])
def test_hold_on_the_way_back_leaves_what_was_suspect_before(found, before):
    """What is held for says nothing for the states that were to be left behind already."""
    hold = replace(SPIKE, generation=2, verdict=Verdict.HOLD, before_step=found)
    _, held = JOBS.given(*RUNNING, BACK).when(hold).decision.events
    assert (held.cause, held.before_step) == ("pause", before)


def test_job_that_was_held_does_not_go_on_from_the_suspect_state():
    """Nor does it leave out batches that were not it."""
    paused = JobPaused(job_id=JOB, generation=2, at_ms=60)
    given = JOBS.given(*RUNNING, REQUESTED, HELD, paused)
    resumed = begun(3, "resume", 90, before_step=50)
    given.when(ResumeJob(job_id=JOB, at_ms=90)).then(resumed)
    assert given.given(resumed).state.skipped == ()


def test_person_may_have_a_held_job_go_on_without_the_batches_in_question():
    """Once: what a later pause is about is another matter."""
    paused = JobPaused(job_id=JOB, generation=2, at_ms=60)
    given = JOBS.given(*RUNNING, REQUESTED, HELD, paused)
    resume = ResumeJob(job_id=JOB, at_ms=90, skip_batches=True)
    resumed = begun(3, "resume", 90, before_step=50, skipped=SKIPPED)
    given.when(resume).then(resumed)
    job = given.given(resumed).state
    assert (job.skipped, job.rollbacks, job.questioned) == (SKIPPED, (50,), ())
    later = (PauseRequested(job_id=JOB, at_ms=95), begun(4, "pause", 95), replace(paused))
    given.given(resumed, *later).when(resume).then_rejected("no_batches")


def test_spike_at_a_spent_restart_budget_leaves_its_batches_out_when_a_person_begins_again():
    """The job has failed for how often it was restarted, and not because of them."""
    recoveries = [begun(number, "recovery", number) for number in (2, 3, 4)]
    given = JOBS.given(*RUNNING, *recoveries, replace(RUNNING_2, generation=4))
    (failed,) = given.when(replace(SPIKE, generation=4)).decision.events
    assert isinstance(failed, JobFailed)
    assert (failed.why, failed.before_step, failed.skipped) == ("restart_budget", 50, SKIPPED)
    (restarted,) = given.given(failed).when(RestartJob(job_id=JOB, at_ms=99)).decision.events
    assert restarted.before_step == 50
    job = given.given(failed, restarted).state
    assert (job.skipped, job.rollbacks) == (SKIPPED, (50,))
    again = RestartJob(job_id=JOB, from_step=45, at_ms=99)
    (chosen,) = given.given(failed).when(again).decision.events
    assert (chosen.from_step, given.given(failed, chosen).state.skipped) == (45, SKIPPED)


def test_failure_on_the_way_back_leaves_what_was_suspect():
    """A job that could not go back before a spike must not go on from it when it is begun again."""
    failed = JobFailed(job_id=JOB, generation=2, why="user_error", at_ms=60)
    (restarted,) = (
        JOBS.given(*RUNNING, BACK, failed).when(RestartJob(job_id=JOB, at_ms=99)).decision.events
    )
    assert restarted.before_step == 50


def test_job_without_a_sound_state_is_held_and_does_not_fail():
    """A person may know better than the registry what a state is worth."""
    refused = RecordRefused(
        job_id=JOB, generation=2, why="no_source", detail="nothing is stored", at_ms=60
    )
    remark = "held: no sound state from before step 50: nothing is stored"
    JOBS.given(*RUNNING, BACK, *UP_2[:2]).when(refused).then(
        begun(3, "pause", 60, before_step=50, remark=remark)
    )


def test_batches_are_left_out_at_every_later_start():
    """A state from before the change does not know of it."""
    job = JOBS.given(*RUNNING, BACK, *UP_2).state
    command = start_commands(job, {"h0": RestoreSources()})["h0"]
    assert [(one.first, one.end) for one in command.corrections.skipped] == [(49, 53)]
    assert not command.corrections.rates


def test_learning_rate_is_lower_from_the_suspect_step_on():
    """What is made again up to there was sound, and comes out as it was."""
    slower = {"learning_rate_factor": 0.5, "learning_rate_steps": 20}
    submitted = replace(SUBMITTED, spec_json=json.dumps({**json.loads(SPEC), "numerics": slower}))
    job = JOBS.given(submitted, *RUNNING[1:], BACK).state
    span = RateSpan(after_step=49, until_step=69, factor=0.5)
    assert corrections_of(job) == Corrections(skipped=SKIPPED, rates=(span,))
    assert PLACED_1.placement == job.placement
