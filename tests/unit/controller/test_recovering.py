"""What a recovery takes into account: unsound hosts, silent ones, a spent budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import Spec, spec
from tests.unit.controller.facts import JOB, PLACED_1, RUNNING, begun, placement

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    RecordFenced,
    RecordLost,
    RecordPlacement,
    RecoverJob,
    Verdict,
)
from everstep.controller.events import HostsFenced, JobFailed, PlacementDecided
from everstep.controller.policy import Fence, Place, next_actions

JOBS = spec(AGGREGATE)
PLACED_4 = PlacementDecided(job_id=JOB, generation=4, placement=placement("h0", "h1"))
UNSOUND = RecoverJob(
    job_id=JOB,
    generation=1,
    incident_id="i1",
    verdict=Verdict.REPLACE_IF_SPARE,
    hosts=("h1",),
    ranks=(2,),
    kind="rank_killed",
    reason="rank 2 on h1 ended by signal 9; h1 had 3 within the hour",
    at_ms=50,
)
AVOIDING = begun(2, "recovery", 50, incident_id="i1", unsound_hosts=("h1",))


def test_unsound_host_is_fenced_and_avoided_but_not_lost():
    """It answers, so its ranks are ended like anybody's; the inventory decides on its seat."""
    JOBS.given(*RUNNING).when(UNSOUND).then(AVOIDING)
    job = JOBS.given(*RUNNING, AVOIDING).state
    assert (job.lost_hosts, job.unsound_hosts) == ((), ("h1",))
    assert next_actions(job) == (
        Fence(generation=2, hosts=("h0", "h1"), graceful=False),
        Place(generation=2, lost_hosts=()),
    )


def test_unsound_host_that_does_not_answer_is_lost():
    """The next generation must do without it."""
    fenced = RecordFenced(job_id=JOB, generation=2, hosts=("h0",), unreachable=("h1",), at_ms=60)
    given = JOBS.given(*RUNNING, AVOIDING)
    events = given.when(fenced).decision.events
    assert events[-1] == begun(3, "recovery", 60, lost_hosts=("h1",))
    job = given.given(*events).state
    assert (job.lost_hosts, job.unsound_hosts) == (("h1",), ())


def test_unsound_host_is_avoided_again_when_the_generation_never_came_up():
    """Until there is a placement, what was wished for it still holds."""
    job = JOBS.given(*RUNNING, AVOIDING, begun(3, "recovery", lost_hosts=("h0",))).state
    assert (job.lost_hosts, job.unsound_hosts) == (("h0",), ("h1",))


def test_remark_of_a_placement_is_kept():
    """An operator reads why the unsound host serves on."""
    words = "no spare host can take the ranks of h1: restarted in place"
    kept = placement("h0", "h1")
    JOBS.given(*RUNNING, AVOIDING).when(
        RecordPlacement(job_id=JOB, generation=2, placement=kept, remark=words, at_ms=55)
    ).then(PlacementDecided(job_id=JOB, generation=2, placement=kept, remark=words, at_ms=55))


def test_silent_host_that_the_placement_does_without_costs_no_further_generation():
    """A paused job's dead host is cordoned and replaced: what it held counts as gone."""
    moved = PlacementDecided(
        job_id=JOB, generation=3, placement=placement("h0", "h2"), replacements=("h2",)
    )
    given = JOBS.given(*RUNNING, begun(2, "pause"), begun(3, "resume"), moved)
    at = {"job_id": JOB, "generation": 3, "at_ms": 60}
    given.when(RecordFenced(hosts=("h0",), unreachable=("h1",), **at)).then(
        HostsFenced(hosts=("h0",), unreachable=("h1",), **at)
    )
    given.when(RecordFenced(hosts=(), unreachable=("h0", "h1"), **at)).then(
        HostsFenced(hosts=(), unreachable=("h0", "h1"), **at),
        begun(4, "recovery", 60, lost_hosts=("h0",)),
    )


def spent() -> Spec:
    """Three recoveries within the hour, as many as the spec allows."""
    return JOBS.given(*RUNNING, *(begun(g, "recovery", at_ms=10 * g) for g in (2, 3, 4)), PLACED_1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"kind": "user_error", "hosts": (), "detail": "Traceback\n  x\nValueError: bad\n"},
            "The last one: user_error of rank 2 on h1: ValueError: bad",
        ),
        ({}, "The last one: rank_killed of rank 2 on h1: rank 2 on h1 ended by signal 9"),
        (
            {"kind": "collective_error", "hosts": (), "ranks": tuple(range(10)), "reason": "x"},
            "collective_error of ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more on h0, h1: x",
        ),
    ],
)
def test_spent_budget_names_the_last_incident(changes, said):
    """Kind, ranks, hosts and the last line of the error: what a person looks for first."""
    incident = replace(UNSOUND, generation=4, at_ms=100, **changes)
    (failed,) = spent().when(incident).decision.events
    assert isinstance(failed, JobFailed)
    assert failed.why == "restart_budget"
    assert "restarts_per_hour_max 3" in failed.detail
    assert said in failed.detail


def test_spent_budget_names_hosts_that_did_not_answer():
    """A loss during a recovery has no incident of its own."""
    lost = RecordLost(job_id=JOB, generation=4, hosts=("h1",), at_ms=100)
    (failed,) = spent().when(lost).decision.events
    assert failed.detail.endswith("The last one: no answer from h1")


def troubled(hosts: tuple[str, ...], at_ms: tuple[int, int, int]) -> Spec:
    """A budget of three spent on hosts that answer, for want of spares."""
    begins = [
        begun(2 + number, "recovery", at_ms=at, unsound_hosts=hosts)
        for number, at in enumerate(at_ms)
    ]
    return JOBS.given(*RUNNING, *begins, PLACED_4)


def test_budget_spent_on_an_unsound_host_costs_the_host_its_seat_and_not_the_job_its_life():
    """Without a spare it was restarted there again and again; now the job waits for another."""
    given = troubled(("h1",), (4_000_000, 4_000_010, 4_000_020))
    at = {"generation": 4, "at_ms": 4_000_100}
    (begins,) = given.when(replace(UNSOUND, **at)).decision.events
    assert begins == begun(5, "recovery", 4_000_100, incident_id="i1", lost_hosts=("h1",))
    job = given.given(begins).state
    assert len(job.recoveries) == 1, "what the host has used up is given back"


def test_second_unsound_host_within_the_hour_fails_the_job():
    """Deaths that follow the job from host to host are not the hosts'."""
    given = troubled(("h1",), (4_000_000, 4_000_010, 4_000_020))
    gives_up = begun(5, "recovery", 4_000_100, incident_id="i1", lost_hosts=("h1",))
    placed = PlacementDecided(job_id=JOB, generation=5, placement=placement("h0", "h2"))
    more = [begun(g, "recovery", at_ms=4_000_100 + g, unsound_hosts=("h2",)) for g in (6, 7)]
    given = given.given(gives_up, placed, *more)
    last = replace(UNSOUND, generation=7, hosts=("h2",), at_ms=4_001_000)
    (failed,) = given.when(last).decision.events
    assert isinstance(failed, JobFailed)
    assert failed.why == "restart_budget"
    later = replace(last, at_ms=4_000_100 + 3_600_000)
    (begins,) = given.when(later).decision.events
    assert begins.lost_hosts == (), "the budget of that hour is not spent"


def test_hosts_that_were_replaced_by_spares_count_against_the_budget():
    """A fleet of bad hosts is a loop too."""
    begins = [
        begun(2 + n, "recovery", at_ms=4_000_000 + n, unsound_hosts=(f"x{n}",)) for n in range(3)
    ]
    given = JOBS.given(*RUNNING, *begins, PLACED_4)
    again = replace(UNSOUND, verdict=Verdict.RESTART, generation=4, at_ms=4_000_100)
    (failed,) = given.when(again).decision.events
    assert isinstance(failed, JobFailed)
