"""What a job needs next, read off its state."""

from __future__ import annotations

from functools import reduce

from tests.unit.controller.facts import (
    FENCED_2,
    JOB,
    LAUNCHED,
    PLACED_1,
    PLANNED_1,
    RUNNING,
    STARTED_1,
    begun,
    placement,
)

from everstep.controller.events import JobFailed, JobPaused, PlacementDecided
from everstep.controller.policy import Fence, Forget, Place, Plan, Start, next_actions
from everstep.controller.state import Job, evolve


def after(*events: object) -> Job:
    """Fold events."""
    return reduce(evolve, events, Job())


def test_launch_places_then_plans_then_starts():
    """Each stage waits for the one before; nothing is left to do once started."""
    assert next_actions(after(*LAUNCHED)) == (Place(generation=1, lost_hosts=()),)
    assert next_actions(after(*LAUNCHED, PLACED_1)) == (Plan(generation=1, from_step=-1),)
    planned = (*LAUNCHED, PLACED_1, PLANNED_1)
    assert next_actions(after(*planned)) == (Start(generation=1),)
    assert next_actions(after(*planned, STARTED_1)) == ()
    assert next_actions(after(*RUNNING)) == ()


def test_recovery_fences_survivors_and_places_at_the_same_time():
    """The two round trips overlap; the plan needs both."""
    lost = (*RUNNING, begun(2, "recovery", lost_hosts=("h1",)))
    fence = Fence(generation=2, hosts=("h0",), graceful=False)
    place = Place(generation=2, lost_hosts=("h1",))
    assert next_actions(after(*lost)) == (fence, place)
    assert next_actions(after(*lost, FENCED_2)) == (place,)
    new = PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h2"))
    assert next_actions(after(*lost, new)) == (fence,)
    assert next_actions(after(*lost, FENCED_2, new)) == (Plan(generation=2, from_step=-1),)


def test_pause_only_fences_gracefully():
    """No host is asked for, nothing is planned."""
    pausing = (*RUNNING, begun(2, "pause"))
    assert next_actions(after(*pausing)) == (
        Fence(generation=2, hosts=("h0", "h1"), graceful=True),
    )
    assert next_actions(after(*pausing, JobPaused(job_id=JOB, generation=2, at_ms=0))) == ()


def test_ended_job_is_forgotten_by_its_hosts():
    """A failed job's survivors may still run: they are fenced one generation further on."""
    failed = (*RUNNING, JobFailed(job_id=JOB, generation=1, why="user_error"))
    assert next_actions(after(*failed)) == (Forget(generation=2, hosts=("h0", "h1")),)


def test_lost_host_stays_lost_until_a_placement_without_it():
    """Three losses in a row add up; the placement that replaces them clears the list."""
    state = after(
        *RUNNING,
        begun(2, "recovery", lost_hosts=("h1",)),
        begun(3, "recovery", lost_hosts=("h0",)),
    )
    assert state.lost_hosts == ("h0", "h1")
    placed = PlacementDecided(job_id=JOB, generation=3, placement=placement("h2", "h3"))
    assert evolve(evolve(state, placed), begun(4, "recovery")).lost_hosts == ()
