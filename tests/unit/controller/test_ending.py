"""How a run ends: early, unevenly, while it is paused; and what cannot be paused."""

from __future__ import annotations

import json

import pytest
from tests.spec import Spec, spec
from tests.unit.controller.facts import JOB, PLACED_1, PLANNED_1, SPEC, STARTED_1, begun

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import PauseJob, RecordFinished, RecordProgress
from everstep.controller.events import (
    HostsFenced,
    JobPaused,
    JobRunning,
    JobSubmitted,
    JobSucceeded,
    PauseRequested,
)
from everstep.controller.policy import Fence, next_actions

MODULE = "everstep.models.pretrain:main"
SCRIPT = "train.py"
PAUSE = PauseJob(job_id=JOB, at_ms=5)


def running(entry: str, step: int) -> Spec:
    """A job of ten steps whose first word was ``step``."""
    spec_json = json.dumps({**json.loads(SPEC), "entry": entry})
    return spec(AGGREGATE).given(
        JobSubmitted(job_id=JOB, name="demo", spec_json=spec_json, at_ms=0),
        begun(1, "launch"),
        PLACED_1,
        PLANNED_1,
        STARTED_1,
        JobRunning(job_id=JOB, generation=1, step=step, at_ms=0),
    )


@pytest.mark.parametrize(
    ("entry", "step", "uneven", "detail"),
    [
        (MODULE, 10, "", ""),
        (MODULE, 7, "", "returned at step 7 of 10"),
        (MODULE, 0, "", "returned at step 0 of 10"),
        (SCRIPT, 0, "", ""),
        (SCRIPT, 7, "", "returned at step 7 of 10"),
        (MODULE, 10, "rank 0 at step 9", "rank 0 at step 9"),
        (MODULE, 8, "rank 0 at step 7", "returned at step 8 of 10; rank 0 at step 7"),
    ],
)
def test_run_that_did_not_end_as_specified_says_so(entry, step, uneven, detail):
    """It has succeeded all the same; scripts that tell no steps have nothing to compare."""
    running(entry, 1).when(
        RecordFinished(job_id=JOB, generation=1, step=step, detail=uneven, at_ms=9)
    ).then(JobSucceeded(job_id=JOB, generation=1, step=step, detail=detail, at_ms=9))


@pytest.mark.parametrize("already_paused", [False, True])
@pytest.mark.parametrize("of_generation", [1, 2])
def test_run_that_finishes_while_it_is_being_paused_has_succeeded(already_paused, of_generation):
    """Whichever comes first, the answer to the fence or the last rank's end."""
    given = running(MODULE, 1).given(PauseRequested(job_id=JOB, at_ms=5), begun(2, "pause", 5))
    if already_paused:
        given = given.given(
            HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1"), at_ms=6),
            JobPaused(job_id=JOB, generation=2, at_ms=6),
        )
    given.when(RecordFinished(job_id=JOB, generation=of_generation, step=10, at_ms=9)).then(
        JobSucceeded(job_id=JOB, generation=2, step=10, at_ms=9)
    )


def test_end_that_is_told_after_the_resume_changes_nothing():
    """The new ranks are restored to the last step and end by themselves."""
    resumed = running(MODULE, 1).given(begun(2, "pause"), begun(3, "resume"))
    for generation in (1, 2):
        resumed.when(RecordFinished(job_id=JOB, generation=generation, step=10, at_ms=9)).then()


def test_pause_of_a_script_that_tells_no_steps_is_refused():
    """It could only be killed; whoever wants the hosts back is told how."""
    refused = running(SCRIPT, 0).when(PAUSE)
    refused.then_rejected("nothing_to_pause")
    assert f"`everstep jobs stop {JOB}` ends it" in refused.decision.detail


@pytest.mark.parametrize(
    ("entry", "step", "graceful"), [(SCRIPT, 0, False), (SCRIPT, 1, True), (MODULE, 1, True)]
)
def test_stop_waits_only_for_ranks_that_can_hear_it(entry, step, graceful):
    """A script without the SDK is ended at once: nothing would come of waiting a minute."""
    job = running(entry, step).given(begun(2, "stop", 5)).state
    fence = Fence(generation=2, hosts=("h0", "h1"), graceful=graceful, store=graceful)
    assert next_actions(job) == (fence,)


def test_script_that_takes_the_sdk_can_be_paused_once_it_has_told_a_step():
    """Its ranks were seen before its first step was."""
    first = RecordProgress(job_id=JOB, generation=1, step=1, at_ms=4)
    told = JobRunning(job_id=JOB, generation=1, step=1, at_ms=4)
    given = running(SCRIPT, 0)
    given.when(first).then(told)
    given.given(told).when(first).then()
    given.given(told).when(PAUSE).then(PauseRequested(job_id=JOB, at_ms=5), begun(2, "pause", 5))


def test_script_that_waits_for_its_first_hosts_can_be_paused():
    """Nothing runs yet, so nothing is lost."""
    spec_json = json.dumps({**json.loads(SPEC), "entry": SCRIPT})
    waiting = spec(AGGREGATE).given(
        JobSubmitted(job_id=JOB, name="demo", spec_json=spec_json, at_ms=0), begun(1, "launch")
    )
    assert JobPaused(job_id=JOB, generation=2, at_ms=5) in waiting.when(PAUSE).decision.events
