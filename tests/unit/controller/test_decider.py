"""What commands mean for a job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import (
    FENCED_2,
    JOB,
    LAUNCHED,
    PLACED_1,
    PLANNED_1,
    RUNNING,
    SPEC,
    SUBMITTED,
    begun,
    placement,
)

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    LaunchJob,
    PauseJob,
    RecordFenced,
    RecordFinished,
    RecordLost,
    RecordPlacement,
    RecordPlan,
    RecordProgress,
    RecordRefused,
    RecordShort,
    RecordStarted,
    RecoverJob,
    RestartJob,
    ResumeJob,
    SaveCheckpoint,
    StopJob,
    Verdict,
)
from everstep.controller.events import (
    CheckpointRequested,
    HostsFenced,
    HostsShort,
    JobFailed,
    JobPaused,
    JobRunning,
    JobStopped,
    JobSucceeded,
    PauseRequested,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
    StopRequested,
)
from everstep.controller.policy import Place, next_actions
from everstep.controller.state import Phase
from everstep.core.spec import SPEC_BYTES_MAX

JOBS = spec(AGGREGATE)
HOST_LOST = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.REPLACE,
    hosts=("h1",),
    kind="host_lost",
    at_ms=50,
)


def test_launch_of_a_new_job_begins_its_first_generation():
    """A launch is a submission and generation 1."""
    JOBS.when(LaunchJob(job_id=JOB, spec_json=SPEC, at_ms=0)).then(*LAUNCHED)


def test_launch_repeated_with_the_same_spec_changes_nothing():
    """Launching is idempotent."""
    JOBS.given(*LAUNCHED).when(LaunchJob(job_id=JOB, spec_json=SPEC, at_ms=9)).then()


def test_launch_with_another_spec_is_refused():
    """An id names one spec for good."""
    other = SPEC.replace('"steps": 10', '"steps": 11')
    JOBS.given(*LAUNCHED).when(LaunchJob(job_id=JOB, spec_json=other, at_ms=9)).then_rejected(
        "job_exists"
    )


def test_launch_with_an_unusable_id_or_spec_is_refused():
    """Bad input is answered, not stored."""
    JOBS.when(LaunchJob(job_id="a.b", spec_json=SPEC, at_ms=0)).then_rejected("invalid_job_id")
    JOBS.when(LaunchJob(job_id=JOB, spec_json="{}", at_ms=0)).then_rejected("invalid_spec")
    large = json.dumps({**json.loads(SPEC), "args": {"x": "x" * SPEC_BYTES_MAX}})
    JOBS.when(LaunchJob(job_id=JOB, spec_json=large, at_ms=0)).then_rejected("invalid_spec")


def test_command_for_an_unknown_job_is_refused():
    """There is nothing to stop."""
    unknown = JOBS.when(StopJob(job_id="nope", at_ms=0))
    unknown.then_rejected("unknown_job")
    assert unknown.decision.detail == "there is no job 'nope'; `everstep jobs` lists them"


def test_lost_host_begins_the_next_generation_without_it():
    """The incident's hosts are the lost hosts of the recovery."""
    JOBS.given(*RUNNING).when(HOST_LOST).then(
        begun(2, "recovery", 50, incident_id="i1", lost_hosts=("h1",))
    )


def test_restart_verdict_loses_no_host():
    """A killed rank restarts where it was."""
    killed = RecoverJob(
        job_id=JOB,
        generation=1,
        incident_id="i1",
        verdict=Verdict.RESTART,
        hosts=("h1",),
        at_ms=50,
    )
    JOBS.given(*RUNNING).when(killed).then(begun(2, "recovery", 50, incident_id="i1"))


def test_incident_of_an_older_generation_changes_nothing():
    """What it speaks of is fenced off already."""
    JOBS.given(*RUNNING, begun(2, "recovery")).when(HOST_LOST).then()


def test_fail_verdict_fails_the_job_with_its_detail():
    """A user error for the second time ends the job and shows the traceback."""
    fail = RecoverJob(
        job_id=JOB,
        generation=1,
        incident_id="i1",
        verdict=Verdict.FAIL,
        kind="user_error",
        detail="Traceback ...",
        at_ms=50,
    )
    JOBS.given(*RUNNING).when(fail).then(
        JobFailed(job_id=JOB, generation=1, why="user_error", detail="Traceback ...", at_ms=50)
    )


def test_host_that_does_not_answer_the_fence_is_lost_too():
    """A failure during recovery begins the next generation with both hosts lost."""
    recovering = (*RUNNING, begun(2, "recovery", 50, incident_id="i1", lost_hosts=("h1",)))
    fenced = RecordFenced(job_id=JOB, generation=2, hosts=(), unreachable=("h0",), at_ms=60)
    given = JOBS.given(*recovering)
    given.when(fenced).then(
        HostsFenced(job_id=JOB, generation=2, hosts=(), unreachable=("h0",), at_ms=60),
        begun(3, "recovery", 60, lost_hosts=("h0",)),
    )
    state = given.given(*given.when(fenced).decision.events).state
    assert state.lost_hosts == ("h0", "h1")
    assert state.hosts_to_fence == ()


def test_restart_from_a_step_that_cannot_be_is_refused():
    """Over the bus anything may come; the job ended with it."""
    restart = RestartJob(job_id=JOB, from_step=-2, at_ms=9)
    JOBS.given(*RUNNING).when(restart).then_rejected("invalid_step")


def test_loss_during_a_restart_from_a_step_keeps_that_step():
    """A recovery that interrupts "restart from step 4" still goes to step 4."""
    restarting = (*RUNNING, begun(2, "restart", from_step=4))
    lost = RecordLost(job_id=JOB, generation=2, hosts=("h1",), at_ms=70)
    JOBS.given(*restarting).when(lost).then(
        begun(3, "recovery", 70, lost_hosts=("h1",), from_step=4)
    )


def test_stages_of_a_generation_are_recorded_once():
    """Each stage's answer is a fact; the same answer again is already so."""
    at = {"job_id": JOB, "generation": 2, "at_ms": 60}
    new = placement("h0", "h2")
    stages = [
        (RecordFenced(hosts=("h0",), **at), HostsFenced(hosts=("h0",), **at)),
        (
            RecordPlacement(placement=new, replacements=("h2",), **at),
            PlacementDecided(placement=new, replacements=("h2",), **at),
        ),
        (
            RecordPlan(step=7, own_memory=2, peer_memory=2, rendezvous_port=9, **at),
            RestoreDecided(step=7, own_memory=2, peer_memory=2, rendezvous_port=9, **at),
        ),
        (RecordStarted(**at), RanksStarted(**at)),
        (RecordProgress(step=8, **at), JobRunning(step=8, **at)),
    ]
    given = JOBS.given(*RUNNING, begun(2, "recovery", 50, lost_hosts=("h1",)))
    for command, event in stages:
        given.when(command).then(event)
        given = given.given(event)
        given.when(command).then()


def test_answers_of_an_older_generation_change_nothing():
    """A late answer speaks of what is fenced off."""
    given = JOBS.given(*RUNNING, begun(2, "recovery"))
    old = {"job_id": JOB, "generation": 1, "at_ms": 60}
    for command in (
        RecordFenced(hosts=("h0",), **old),
        RecordPlacement(placement=placement("h0", "h1"), **old),
        RecordShort(missing=1, **old),
        RecordPlan(step=1, **old),
        RecordStarted(**old),
        RecordLost(hosts=("h0",), **old),
        RecordRefused(why="x", **old),
        RecordProgress(step=1, **old),
        RecordFinished(step=1, **old),
    ):
        given.when(command).then()


def test_plan_before_the_fence_is_complete_changes_nothing():
    """A plan made while ranks may still write would not be a plan."""
    given = JOBS.given(*RUNNING, begun(2, "recovery", lost_hosts=("h1",)))
    given.when(RecordPlan(job_id=JOB, generation=2, step=3)).then()


def test_missing_hosts_are_reported_once_for_each_number():
    """Waiting says how many are missing, and says it again only when that changes."""
    given = JOBS.given(*RUNNING, begun(2, "recovery", lost_hosts=("h1",)), FENCED_2)
    short = HostsShort(job_id=JOB, generation=2, missing=1, at_ms=60)
    given.when(RecordShort(job_id=JOB, generation=2, missing=1, at_ms=60)).then(short)
    given.given(short).when(RecordShort(job_id=JOB, generation=2, missing=1, at_ms=70)).then()
    assert given.given(short).state.phase == "waiting_for_hosts"


def test_restart_budget_spent_fails_the_job():
    """More recoveries in an hour than the spec allows stop the job and say what to do."""
    hour = 3_600_000
    spent = [begun(g, "recovery", at_ms=10 * g) for g in (2, 3, 4)]
    given = JOBS.given(*RUNNING, *spent, PLACED_1)
    again = RecoverJob(
        job_id=JOB, generation=4, incident_id="i", verdict=Verdict.RESTART, at_ms=100
    )
    (failed,) = given.when(again).decision.events
    assert isinstance(failed, JobFailed)
    assert failed.why == "restart_budget"
    later = RecoverJob(
        job_id=JOB, generation=4, incident_id="i", verdict=Verdict.RESTART, at_ms=100 + hour
    )
    given.when(later).then(begun(5, "recovery", 100 + hour, incident_id="i"))


def test_pause_fences_then_rests_and_resume_goes_on():
    """Pausing is a generation of its own that only ends ranks."""
    given = JOBS.given(*RUNNING)
    given.when(PauseJob(job_id=JOB, at_ms=5)).then(
        PauseRequested(job_id=JOB, at_ms=5), begun(2, "pause", 5)
    )
    given = given.given(PauseRequested(job_id=JOB, at_ms=5), begun(2, "pause", 5))
    given.when(PauseJob(job_id=JOB, at_ms=6)).then()
    fenced = HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1"), at_ms=7)
    paused = JobPaused(job_id=JOB, generation=2, at_ms=7)
    given.when(RecordFenced(job_id=JOB, generation=2, hosts=("h0", "h1"), at_ms=7)).then(
        fenced, paused
    )
    given = given.given(fenced, paused)
    given.when(ResumeJob(job_id=JOB, at_ms=9)).then(begun(3, "resume", 9))


def test_resume_of_a_job_that_is_not_paused():
    """A running job is already so; a stopping one is refused."""
    JOBS.given(*RUNNING).when(ResumeJob(job_id=JOB, at_ms=1)).then()
    stopping = (StopRequested(job_id=JOB, at_ms=1), begun(2, "stop", 1))
    JOBS.given(*RUNNING, *stopping).when(ResumeJob(job_id=JOB, at_ms=1)).then_rejected("not_paused")


def test_incident_while_pausing_does_not_restart_the_job():
    """Ranks that are being ended fail in each other's eyes."""
    pausing = (PauseRequested(job_id=JOB, at_ms=5), begun(2, "pause", 5))
    incident = RecoverJob(
        job_id=JOB, generation=2, incident_id="i", verdict=Verdict.RESTART, at_ms=6
    )
    JOBS.given(*RUNNING, *pausing).when(incident).then()


def test_stop_before_any_host_was_given_ends_at_once():
    """There is nothing to fence."""
    JOBS.given(*LAUNCHED).when(StopJob(job_id=JOB, at_ms=5)).then(
        StopRequested(job_id=JOB, at_ms=5),
        begun(2, "stop", 5),
        JobStopped(job_id=JOB, generation=2, at_ms=5),
    )


def test_ended_job_takes_no_more_commands():
    """Only stopping an ended job is already so."""
    ended = JOBS.given(*RUNNING, JobSucceeded(job_id=JOB, generation=1, step=10, at_ms=9))
    ended.when(StopJob(job_id=JOB, at_ms=10)).then()
    for command in (
        RestartJob(job_id=JOB, at_ms=10),
        PauseJob(job_id=JOB, at_ms=10),
        SaveCheckpoint(job_id=JOB, at_ms=10),
    ):
        ended.when(command).then_rejected("job_ended")
    ended.when(HOST_LOST).then()


@pytest.mark.parametrize(
    "end",
    [
        JobFailed(job_id=JOB, generation=1, why="restart_budget", detail="", at_ms=9),
        JobStopped(job_id=JOB, generation=1, at_ms=9),
    ],
)
def test_job_that_failed_or_was_stopped_is_restarted_by_a_person(end):
    """Past what its hosts were told to forget, without them, and with its budget whole again."""
    before = JOBS.given(*RUNNING, begun(2, "recovery", 5), replace(end, generation=2))
    for command in (PauseJob, SaveCheckpoint, ResumeJob):
        before.when(command(job_id=JOB, at_ms=10)).then_rejected("job_ended")
    (again,) = before.when(RestartJob(job_id=JOB, from_step=4, at_ms=10)).decision.events
    assert again == begun(4, "restart", 10, from_step=4)
    after = before.given(again).state
    assert (after.phase, after.placement, after.recoveries) == (Phase.RECOVERING, None, ())
    assert next_actions(after) == (Place(generation=4, lost_hosts=()),)


def test_checkpoint_now_needs_a_running_job():
    """Between generations there is no state to save."""
    JOBS.given(*RUNNING).when(SaveCheckpoint(job_id=JOB, at_ms=3)).then(
        CheckpointRequested(job_id=JOB, at_ms=3)
    )
    JOBS.given(SUBMITTED, begun(1, "launch")).when(
        SaveCheckpoint(job_id=JOB, at_ms=3)
    ).then_rejected("not_running")


def test_refusal_by_another_service_fails_the_job_with_its_words():
    """A layout that can never fit is told to the user as the inventory said it."""
    refused = RecordRefused(
        job_id=JOB, generation=1, why="does_not_fit", detail="needs 4 chips, there are 2", at_ms=3
    )
    JOBS.given(*LAUNCHED).when(refused).then(
        JobFailed(
            job_id=JOB,
            generation=1,
            why="does_not_fit",
            detail="needs 4 chips, there are 2",
            at_ms=3,
        )
    )


def test_job_that_waits_for_hosts_waits_on_when_one_leaves():
    """Seed 42001: the agent of one was only started anew, and the job failed."""
    short = HostsShort(job_id=JOB, generation=1, missing=1, at_ms=2)
    refused = RecordRefused(job_id=JOB, generation=1, why="does_not_fit", detail="", at_ms=3)
    JOBS.given(*LAUNCHED, short).when(refused).then()


def test_restart_from_a_step_that_is_gone_goes_on_from_the_newest():
    """A person's wish that cannot be fulfilled must not cost the run; the reason is told."""
    restarted = (*RUNNING, replace(begun(2, "restart"), from_step=30))
    refused = RecordRefused(job_id=JOB, generation=2, why="no_such_step", detail="gone", at_ms=5)
    JOBS.given(*restarted).when(refused).then(
        replace(
            begun(3, "restart"),
            at_ms=5,
            remark="step 30 cannot be restored, going on from the newest: gone",
        )
    )
    newest = replace(refused, generation=3, why="no_source")
    JOBS.given(*restarted, begun(3, "restart")).when(newest).then(
        JobFailed(job_id=JOB, generation=3, why="no_source", detail="gone", at_ms=5)
    )


def test_first_step_before_the_start_was_recorded_still_counts():
    """The monitor may be faster than the last start answer."""
    JOBS.given(*LAUNCHED, PLACED_1, PLANNED_1).when(
        RecordProgress(job_id=JOB, generation=1, step=1, at_ms=4)
    ).then(JobRunning(job_id=JOB, generation=1, step=1, at_ms=4))
