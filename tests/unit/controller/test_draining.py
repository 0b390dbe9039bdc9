"""Moving off hosts that still work: when spares are there, and after a last common step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, LAUNCHED, PLACED_1, RUNNING, begun, placement

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    BeginDrain,
    DrainHosts,
    RecordFinished,
    RecoverJob,
    Verdict,
)
from everstep.controller.events import (
    DrainRequested,
    HostsFenced,
    JobFailed,
    JobSucceeded,
    PlacementDecided,
)
from everstep.controller.policy import AwaitSpares, Fence, Place, next_actions, unsound_reason

JOBS = spec(AGGREGATE)
ASKED = DrainHosts(job_id=JOB, hosts=("h1",), why="new firmware", at_ms=50)
WANTED = DrainRequested(job_id=JOB, hosts=("h1",), why="new firmware", at_ms=50)
SLOW = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.DRAIN,
    hosts=("h1",),
    kind="straggler",
    reason="8 % slower",
    at_ms=50,
)
READY = BeginDrain(job_id=JOB, generation=1, hosts=("h1",), at_ms=60)
MOVING = begun(2, "drain", 60, unsound_hosts=("h1",))


def test_job_runs_on_until_spares_are_there():
    """What works badly is better than what waits."""
    JOBS.given(*RUNNING).when(ASKED).then(WANTED)
    job = JOBS.given(*RUNNING, WANTED).state
    assert (job.phase, job.generation, job.draining) == ("running", 1, ("h1",))
    assert next_actions(job) == (AwaitSpares(generation=1, hosts=("h1",)),)


def test_slow_host_is_drained_like_one_that_a_person_names():
    """The monitor's word, once."""
    slow = replace(WANTED, why="8 % slower", incident_id="i1", kind="straggler")
    JOBS.given(*RUNNING).when(SLOW).then(slow)
    JOBS.given(*RUNNING, WANTED).when(SLOW).then()
    JOBS.given(*RUNNING).when(replace(SLOW, hosts=("elsewhere",))).then()


def test_ranks_stop_after_a_last_common_step():
    """So no step is lost: the fence is a graceful one."""
    given = JOBS.given(*RUNNING, WANTED)
    given.when(READY).then(MOVING)
    job = given.given(MOVING).state
    assert next_actions(job) == (
        Fence(generation=2, hosts=("h0", "h1"), graceful=True),
        Place(generation=2, lost_hosts=()),
    )
    assert job.unsound_hosts == ("h1",)


def test_job_that_has_moved_waits_for_nothing():
    """And one that could not move in the end still wants to."""
    fenced = HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1"))
    moved = PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h2"))
    stayed = replace(moved, placement=placement("h0", "h1"))
    assert JOBS.given(*RUNNING, WANTED, MOVING, fenced, moved).state.draining == ()
    assert JOBS.given(*RUNNING, WANTED, MOVING, fenced, stayed).state.draining == ("h1",)


def test_move_rides_on_a_failure_that_comes_first():
    """The job is restarted anyway."""
    killed = replace(SLOW, verdict=Verdict.RESTART, hosts=("h0",), incident_id="i2")
    given = JOBS.given(*RUNNING, WANTED)
    recovery = begun(2, "recovery", 50, incident_id="i2")
    given.when(killed).then(recovery)
    assert given.given(recovery).state.unsound_hosts == ("h1",)


def test_spares_that_come_too_late_begin_nothing():
    """Of an older generation, of a job that is coming up, or for a host that it has left."""
    JOBS.given(*RUNNING, WANTED, begun(2, "recovery", 55)).when(READY).then()
    coming = replace(READY, generation=2)
    JOBS.given(*RUNNING, WANTED, begun(2, "recovery", 55)).when(coming).then()
    JOBS.given(*RUNNING).when(READY).then()


def test_run_that_finishes_while_it_moves_has_succeeded():
    """Its last step was the last common one."""
    finished = RecordFinished(job_id=JOB, generation=1, step=10, at_ms=70)
    done = JobSucceeded(job_id=JOB, generation=2, step=10, at_ms=70)
    JOBS.given(*RUNNING, WANTED, MOVING).when(finished).then(done)


def test_drain_of_what_is_not_its_host_is_refused():
    """A slip of the pen must not end in silence."""
    JOBS.given(*RUNNING).when(replace(ASKED, hosts=("h9",))).then_rejected("not_its_host")
    JOBS.given(*LAUNCHED).when(ASKED).then_rejected("not_its_host")
    failed = JobFailed(job_id=JOB, generation=1, why="x")
    JOBS.given(*RUNNING, failed).when(ASKED).then_rejected("job_ended")
    assert PLACED_1.placement.host_ids == ("h0", "h1")


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ((), "drained"),
        (("straggler",), "straggler"),
        (("straggler", "silent_corruption"), "silent_corruption"),
        (("errors_rising", "silent_corruption"), "silent_corruption"),
    ],
)
def test_inventory_is_told_what_a_host_is_wanted_out_for(kinds: tuple[str, ...], reason: str):
    """Wrong bits are not forgiven, whatever else there is; a person's wish has no kind."""
    wishes = [replace(WANTED, hosts=(f"h{n}",), kind=kind) for n, kind in enumerate(kinds, 1)]
    hosts = tuple(f"h{n}" for n in range(1, 1 + max(len(kinds), 1)))
    moving = replace(MOVING, unsound_hosts=hosts)
    job = JOBS.given(*RUNNING, *(wishes or [WANTED]), moving).state
    assert unsound_reason(job) == reason


def test_what_a_host_was_wanted_out_for_holds_in_a_recovery_and_goes_with_the_host():
    """Whatever begins the generation that leaves it."""
    corrupt = replace(WANTED, kind="silent_corruption")
    job = JOBS.given(*RUNNING, corrupt, begun(2, "recovery", 60)).state
    assert unsound_reason(job) == "silent_corruption"
    fenced = HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h1"))
    moved = PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h2"))
    gone = JOBS.given(*RUNNING, corrupt, MOVING, fenced, moved).state
    assert (gone.drain_kinds, unsound_reason(gone)) == ({}, "drained")
