"""When a step is overdue, and how long each explanation is waited for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.monitor.detectors.hang import (
    GAPS_MAX,
    HangLimits,
    Pace,
    Patience,
    Stuck,
    is_stuck,
    patience_for,
)

LIMITS = HangLimits()
TIMEOUT_MS = 120_000


def stepping(*gaps_ms: int) -> Pace:
    """A run that has just made a step, after these gaps."""
    return Pace(stepped_ms=1_000_000, gaps_ms=gaps_ms, progressed=True)


def looked_at_after(pace: Pace, timeout_ms: int = TIMEOUT_MS) -> int:
    """The shortest silence that makes it worth a look [ms]."""
    return next(
        ms
        for ms in range(0, 10_000_000, 500)
        if is_stuck(pace.stepped_ms + ms, pace, LIMITS, collective_timeout_ms=timeout_ms)
    )


@pytest.mark.parametrize(
    ("pace", "look_ms"),
    [
        (stepping(200, 210, 190), 6_000),
        (stepping(5_000, 5_100, 5_200), 41_000),
        (stepping(*[300] * 20, 60_000), 90_000),
        (replace(stepping(200), progressed=False), 30_000),
        (Pace(stepped_ms=1_000_000), 30_000),
        (Pace(stepped_ms=1_000_000, progressed=True), 30_000),
        (stepping(20_000), 89_000),
        (stepping(80_000), 120_000),
    ],
    ids=[
        "fast",
        "slow",
        "after_a_long_step",
        "before_its_first_step",
        "launched",
        "one_step",
        "very_slow",
        "slower_than_the_others_wait",
    ],
)
def test_look_waits_for_what_is_usual_here(pace, look_ms):
    """The floor, eight usual steps, one and a half long ones, or half a minute at the start.

    But for one and a half long ones, all of that is before the others' collectives fail.
    """
    assert looked_at_after(pace) == look_ms


def test_look_at_a_start_is_in_time_where_collectives_fail_early():
    """Sixteen seconds of looks are over before anybody gives up; but six pass before them."""
    launched = Pace(stepped_ms=1_000_000)
    looks_ms = [looked_at_after(launched, timeout_ms) for timeout_ms in (0, 40_000, 15_000)]
    assert looks_ms == [30_000, 9_000, 6_000]


def test_overdue_step_says_what_was_compared():
    """The numbers go with the word."""
    pace = stepping(200, 210, 190)
    found = is_stuck(pace.stepped_ms + 6_100, pace, LIMITS, collective_timeout_ms=TIMEOUT_MS)
    assert found == Stuck(silent_ms=6_100, patience_ms=6_000, usual_ms=200)


def patience(*judging_ms: int) -> Patience:
    """Look, stopped, sure, together, unsure; and half an hour."""
    look, stopped, sure, together, unsure = judging_ms
    return Patience(
        look=look,
        stopped=stopped,
        sure=sure,
        together=together,
        unsure=unsure,
        hopeless=1_800_000,
    )


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (stepping(200), patience(6_000, 10_000, 10_000, 10_000, 105_000)),
        (
            stepping(*[200] * 20, 60_000),
            patience(90_000, 10_000, 120_000, 120_000, 120_000),
        ),
        (
            Pace(stepped_ms=1_000_000),
            patience(30_000, 10_000, 600_000, 600_000, 600_000),
        ),
        (
            Pace(stepped_ms=0).stepped(45_000),
            patience(30_000, 10_000, 600_000, 600_000, 600_000),
        ),
        (stepping(20_000), patience(89_000, 105_000, 125_000, 200_000, 125_000)),
        (
            replace(stepping(20_000), progressed=False),
            patience(30_000, 105_000, 600_000, 600_000, 600_000),
        ),
    ],
    ids=[
        "in_its_stride",
        "after_a_long_step",
        "before_its_first_step",
        "after_its_first_step",
        "of_long_steps",
        "of_long_steps_before_its_first_one",
    ],
)
def test_patience_is_longest_for_what_may_be_in_order(pace, expected):
    """A stopped rank never is; a pause may be, until the others give up waiting.

    Ten steps of 20 s would be too late: a stopped rank is named before the others' collectives
    fail, one that may have paused a step after that.
    """
    assert patience_for(pace, LIMITS, collective_timeout_ms=TIMEOUT_MS) == expected


def test_ten_long_steps_are_waited_for_where_no_timeout_is_known():
    """Nobody gives up then."""
    expected = patience(160_000, 200_000, 200_000, 200_000, 200_000)
    assert patience_for(stepping(20_000), LIMITS, collective_timeout_ms=0) == expected


def test_fast_run_is_judged_within_the_promised_time():
    """Looks at 6, 8 and 10 s, and one second for the slowest answer: below 15 s."""
    found = patience_for(stepping(200), LIMITS, collective_timeout_ms=TIMEOUT_MS)
    looks_ms = [found.look + n * LIMITS.look_again_ms for n in range(3)]
    assert max(*looks_ms, found.sure) + 1_000 < 15_000


def test_long_step_is_forgotten_after_enough_ordinary_ones():
    """One pause does not make a run unwatched for ever."""
    pace = stepping(200).stepped(1_060_000)
    assert pace.longest_ms == 60_000
    for count in range(GAPS_MAX):
        pace = pace.stepped(1_060_000 + 200 * (count + 1))
    assert (pace.usual_ms, pace.longest_ms, len(pace.gaps_ms)) == (200, 200, GAPS_MAX)


def test_steps_that_are_told_in_one_go_take_as_long_as_their_ranks_say():
    """The bus was away: forty steps of 20 s come at once, and the next is not late after 10 s."""
    pace = stepping(20_000)
    for _ in range(40):
        pace = pace.stepped(1_800_000, 20_000)
    assert (pace.usual_ms, set(pace.gaps_ms[1:])) == (20_000, {20_000})
    assert looked_at_after(pace) == 89_000


def test_pause_between_two_steps_counts_though_no_rank_tells_of_it():
    """What a step took is the longer of what was told and what was seen."""
    assert stepping(200).stepped(1_060_000, 200).gaps_ms == (200, 60_000)


def test_new_generation_keeps_the_pace_and_has_no_step_yet():
    """How long a restart took is no step's time."""
    pace = stepping(200).begun(2_000_000)
    assert pace == Pace(stepped_ms=2_000_000, gaps_ms=(200,))
    assert pace.stepped(2_030_000) == Pace(stepped_ms=2_030_000, gaps_ms=(200,), progressed=True)


def test_monitor_that_could_not_see_begins_to_wait_anew():
    """A machine that was paused as a whole, monitor and all, has lost no step."""
    pace = stepping(200)
    after_ms = pace.stepped_ms + 3_600_000
    late = partial(is_stuck, limits=LIMITS, collective_timeout_ms=TIMEOUT_MS)
    assert late(after_ms, pace)
    assert late(after_ms + 5_900, pace.excused(after_ms)) is None


@given(
    gaps_ms=st.lists(st.integers(0, 10**8), max_size=GAPS_MAX).map(tuple),
    progressed=st.booleans(),
    timeout_ms=st.integers(0, 10**8),
    silent_ms=st.integers(0, 10**9),
)
def test_surer_explanations_are_never_waited_for_longer(gaps_ms, progressed, timeout_ms, silent_ms):
    """Whatever the pace: stopped, sure, unsure, hopeless; and a look comes when it is due.

    Nobody is named sooner than after ten seconds, or by less than two of the longest steps unless
    he is stopped.
    """
    pace = Pace(stepped_ms=0, gaps_ms=gaps_ms, progressed=progressed)
    found = patience_for(pace, LIMITS, collective_timeout_ms=timeout_ms)
    assert LIMITS.judge_ms <= found.stopped <= found.sure <= found.unsure <= found.hopeless
    assert 2 * pace.longest_ms <= found.sure <= found.together <= found.hopeless
    stuck = is_stuck(silent_ms, pace, LIMITS, collective_timeout_ms=timeout_ms)
    assert (stuck is not None) == (silent_ms >= found.look)
