"""Which interval is best for what was measured, and when it is worth a change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.controller import interval
from everstep.controller.commands import Measured
from everstep.controller.events import IntervalChanged, IntervalGrounds
from everstep.controller.failures import FailureRecord
from everstep.controller.interval import (
    Belief,
    IntervalReason,
    best_object_steps,
    choose,
    grounds_for,
    reason_for,
    schedule_waste,
)
from everstep.core.schedule import Schedule

# PEERS' two-level example: M 10,986 s, p 0.02, C 1 and 2 s, U 300 s: 150 and 1,482 s.
EXAMPLE = IntervalGrounds(
    step_us=1_000_000,
    steps_count=100,
    memory_stall_us=1_000_000,
    memory_count=50,
    object_stall_us=2_000_000,
    object_count=4,
    upload_ms=300_000,
    upload_ms_max=300_000,
    upload_count=4,
    mtbf_ms=10_986_000,
    memory_lost_share=0.02,
)
FIRST = Schedule(memory_every_steps=1, object_every_steps=100)


def chosen(grounds: IntervalGrounds, present: Schedule = FIRST) -> tuple[int, int]:
    """The steps that are chosen."""
    choice = choose(grounds, present)
    return choice.memory_every_steps, choice.object_every_steps


def test_two_tiers_of_the_published_example_get_its_intervals():
    """Rounded to whole steps; Daly's higher order is half a second off the first order."""
    memory, objects = chosen(EXAMPLE)
    assert memory == pytest.approx(150, abs=1)
    assert objects == pytest.approx(1_482, abs=2)


def test_memory_tier_that_costs_less_than_a_hundredth_is_taken_every_step():
    """Whatever the formula says; it stays so until it costs a quarter more."""
    below, between, above = (
        replace(EXAMPLE, memory_stall_us=stall_us) for stall_us in (9_900, 12_000, 13_000)
    )
    often = Schedule(memory_every_steps=1, object_every_steps=1_482)
    seldom = Schedule(memory_every_steps=17, object_every_steps=1_482)
    assert [chosen(one, often)[0] for one in (below, between)] == [1, 1]
    assert chosen(above, often)[0] > 10
    assert chosen(below, seldom)[0] == 1
    assert chosen(between, seldom)[0] == 17


def test_object_tier_is_never_more_frequent_than_its_longest_upload():
    """One at a time: T is at least U, also when saves cost nothing at all."""
    free = replace(EXAMPLE, object_stall_us=0, upload_ms=300_000, upload_ms_max=412_300)
    assert chosen(free, replace(FIRST, object_every_steps=2_000))[1] == 413
    costly = replace(EXAMPLE, upload_ms=3_000_000, upload_ms_max=3_000_000)
    assert chosen(costly)[1] == 3_000


def test_interval_that_is_shorter_than_an_upload_is_changed_for_it():
    """Even if the waste says little."""
    quick = replace(EXAMPLE, object_stall_us=0, upload_ms=120_000, upload_ms_max=130_000)
    choice = choose(quick, FIRST)
    assert choice.uploads_pile_up
    assert choice.object_every_steps == 130
    assert not choose(quick, replace(FIRST, object_every_steps=121)).uploads_pile_up


def test_object_tier_stays_until_an_upload_has_ended():
    """Nobody knows yet what one costs; a job that asks for none, or none soon, gets one soon."""
    unseen = replace(EXAMPLE, object_stall_us=1_000, upload_ms=0, upload_ms_max=0, upload_count=0)
    assert best_object_steps(unseen, FIRST) == 100
    assert best_object_steps(unseen, replace(FIRST, object_every_steps=0)) == 300
    for never in (0, 5_000):
        assert chosen(unseen, replace(FIRST, object_every_steps=never))[1] == 300
    assert chosen(unseen, replace(FIRST, object_every_steps=3_000))[1] == 3_000


def test_snapshots_are_a_minute_apart_at_most_unless_they_are_costly():
    """A lost host takes back half an interval, and many hosts have worked in it."""
    small = replace(EXAMPLE, mtbf_ms=10**11, memory_stall_us=20_000)
    assert chosen(small, replace(FIRST, object_every_steps=3_000))[0] == 60
    seldom = Schedule(memory_every_steps=2_000, object_every_steps=3_000)
    assert chosen(small, seldom)[0] == 60
    costly = replace(small, memory_stall_us=500_000)
    assert chosen(costly, seldom)[0] == 500


def test_checkpoints_are_an_hour_apart_at_most_unless_they_are_costly():
    """What people go back to has no failure rate."""
    sound = replace(EXAMPLE, mtbf_ms=10**12, memory_lost_share=0.001)
    assert chosen(sound)[1] == 3_600
    assert chosen(sound, replace(FIRST, object_every_steps=50_000))[1] == 3_600
    assert chosen(sound, replace(FIRST, object_every_steps=3_700))[1] == 3_700
    assert chosen(replace(sound, object_stall_us=10_000_000))[1] == 10_000
    assert chosen(replace(sound, memory_lost_share=0.0))[1] == 3_600


def test_memory_tier_that_was_not_measured_stays_as_it_is():
    """A stall that nobody has seen is not a stall of nothing."""
    unseen = replace(EXAMPLE, memory_stall_us=0, memory_count=0)
    assert chosen(unseen, Schedule(memory_every_steps=40, object_every_steps=1_482)) == (40, 1_482)


@pytest.mark.parametrize("factor", [0.75, 0.9, 1.1, 1.35])
def test_interval_near_the_optimum_is_kept(factor):
    """Off by a third costs a twentieth of the tier's waste: not worth an event."""
    near = Schedule(memory_every_steps=round(150 * factor), object_every_steps=1_482)
    assert chosen(EXAMPLE, near) == (near.memory_every_steps, 1_482)


@pytest.mark.parametrize("factor", [0.3, 0.65, 1.5, 4])
def test_interval_far_from_the_optimum_is_changed(factor):
    """And what follows is never more wasteful."""
    far = Schedule(memory_every_steps=150, object_every_steps=round(1_482 * factor))
    choice = choose(EXAMPLE, far)
    assert choice.object_every_steps == pytest.approx(1_482, abs=2)
    assert choice.waste_after < choice.waste_before


def test_gain_of_less_than_a_second_a_day_is_left_alone():
    """Relative gains of next to nothing are nothing."""
    cheap = replace(EXAMPLE, object_stall_us=1_000, memory_lost_share=1e-6, upload_ms_max=1_000)
    present = Schedule(memory_every_steps=150, object_every_steps=3_600)
    assert chosen(cheap, present) == (150, 3_600)
    assert chosen(cheap, replace(present, object_every_steps=600)) == (150, 600)


grounds_drawn = st.builds(
    IntervalGrounds,
    step_us=st.integers(1_000, 10**8),
    steps_count=st.just(20),
    memory_stall_us=st.integers(0, 10**8),
    memory_count=st.integers(0, 1),
    object_stall_us=st.integers(0, 10**9),
    object_count=st.just(1),
    upload_ms=st.integers(0, 10**7),
    upload_ms_max=st.just(10**7),
    upload_count=st.integers(0, 1),
    mtbf_ms=st.integers(1, 10**12),
    memory_lost_share=st.floats(0, 1),
)
schedules = st.builds(
    Schedule,
    memory_every_steps=st.integers(1, 10**6),
    object_every_steps=st.integers(0, 10**6),
)


@given(grounds_drawn, schedules)
def test_whatever_is_chosen_is_a_schedule_and_is_chosen_again(grounds, present):
    """At least one step each, memory no rarer than the object store; a second look keeps it."""
    choice = choose(grounds, present)
    assert 1 <= choice.memory_every_steps <= choice.object_every_steps
    assert 0 <= choice.waste_after <= 1
    now = Schedule(
        memory_every_steps=choice.memory_every_steps, object_every_steps=choice.object_every_steps
    )
    again = choose(grounds, now)
    assert (again.memory_every_steps, again.object_every_steps) == (
        choice.memory_every_steps,
        choice.object_every_steps,
    )


BELIEF = Belief(mtbf_s=50_000 * 3_600 / 8, memory_lost_share=0.02)
MEASURED = Measured(
    step=40, step_us=100_000, steps_count=32, memory_stall_us=2_000, memory_count=30
)


def test_grounds_without_failures_are_the_belief():
    """A run of a minute says nothing of failures that come once in centuries."""
    grounds = grounds_for(MEASURED, FailureRecord(), BELIEF, None, at_ms=60_000)
    assert grounds.mtbf_ms == pytest.approx(BELIEF.mtbf_s * 1e3, rel=1e-6)
    assert grounds.memory_lost_share == pytest.approx(0.02)
    assert (grounds.object_stall_us, grounds.object_count) == (2_000, 0)


def test_grounds_move_with_the_runs_own_failures():
    """Two failures weigh as much as the belief; one lost memory tier as much as its belief."""
    failures = FailureRecord(
        running_ms=7_200_000,
        failures_count=2,
        memory_restores_count=1,
        object_restores_count=1,
    )
    grounds = grounds_for(MEASURED, failures, BELIEF, None, at_ms=0)
    assert grounds.mtbf_ms == pytest.approx((2 * BELIEF.mtbf_s + 7_200) * 1e3 / 4, rel=1e-6)
    assert grounds.memory_lost_share == pytest.approx(2 / 52)
    assert grounds.failures_count == 2


def test_what_a_new_controller_has_not_measured_yet_is_what_the_last_decision_went_by():
    """Uploads are rare: they are not forgotten with the process."""
    grounds = grounds_for(MEASURED, FailureRecord(), BELIEF, EXAMPLE, at_ms=0)
    assert (grounds.upload_ms, grounds.upload_ms_max, grounds.upload_count) == (300_000, 300_000, 4)
    assert (grounds.object_stall_us, grounds.object_count) == (2_000_000, 4)
    assert (grounds.memory_stall_us, grounds.memory_count) == (2_000, 30)


def changed(grounds: IntervalGrounds, reason: str = "costs") -> IntervalChanged:
    """A decision on some grounds."""
    return IntervalChanged(
        job_id="j", generation=1, schedule=FIRST, auto=True, reason=reason, grounds=grounds
    )


@pytest.mark.parametrize(
    ("now", "last", "reason"),
    [
        (EXAMPLE, None, IntervalReason.FIRST_MEASURED),
        (EXAMPLE, changed(EXAMPLE, "by_request"), IntervalReason.FIRST_MEASURED),
        (replace(EXAMPLE, mtbf_ms=2_000_000), changed(EXAMPLE), IntervalReason.FAILURES),
        (replace(EXAMPLE, memory_lost_share=0.2), changed(EXAMPLE), IntervalReason.FAILURES),
        (replace(EXAMPLE, object_stall_us=90_000), changed(EXAMPLE), IntervalReason.COSTS),
    ],
)
def test_change_names_what_has_moved_most(now, last, reason):
    """Failures or costs, since the decision before."""
    present = Schedule(memory_every_steps=150, object_every_steps=1_482)
    assert reason_for(choose(now, present), present, now, last) is reason


def test_change_for_an_upload_or_for_a_cheap_memory_tier_says_so():
    """Bounds come before the formula, in the reason too."""
    present = Schedule(memory_every_steps=150, object_every_steps=1_482)
    slow = replace(EXAMPLE, upload_ms=4_000_000, upload_ms_max=4_000_000)
    choice = choose(slow, present)
    assert reason_for(choice, present, slow, changed(EXAMPLE)) is IntervalReason.UPLOAD_TIME
    cheap = replace(EXAMPLE, memory_stall_us=1_000)
    choice = choose(cheap, present)
    assert reason_for(choice, present, cheap, changed(EXAMPLE)) is IntervalReason.EVERY_STEP


def test_belief_that_is_sure_of_its_memory_tier_still_learns():
    """A share of 0 weighs as much as fifty recoveries without a loss."""
    sure = Belief(mtbf_s=1.0, memory_lost_share=0.0)
    assert sure.recoveries == interval.PRIOR_RECOVERIES_MAX
    record = FailureRecord(failures_count=1, object_restores_count=1)
    share = grounds_for(MEASURED, record, sure, None, at_ms=0).memory_lost_share
    assert share == pytest.approx(1 / 51)


def test_no_saves_at_all_cost_everything():
    """An object tier that is never written loses all the work, some day."""
    assert schedule_waste(EXAMPLE, 150, 0) == 1.0
