"""When a step is overdue, and how long each explanation is waited for."""

from __future__ import annotations

from dataclasses import replace

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


def looked_at_after(pace: Pace) -> int:
    """The shortest silence that makes it worth a look [ms]."""
    return next(
        ms for ms in range(0, 10_000_000, 500) if is_stuck(pace.stepped_ms + ms, pace, LIMITS)
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
    ],
    ids=["fast", "slow", "after_a_long_step", "before_its_first_step", "launched", "one_step"],
)
def test_look_waits_for_what_is_usual_here(pace, look_ms):
    """The floor, eight usual steps, one and a half long ones, or half a minute at the start."""
    assert looked_at_after(pace) == look_ms


def test_overdue_step_says_what_was_compared():
    """The numbers go with the word."""
    pace = stepping(200, 210, 190)
    assert is_stuck(pace.stepped_ms + 6_100, pace, LIMITS) == Stuck(
        silent_ms=6_100, patience_ms=6_000, usual_ms=200
    )


@pytest.mark.parametrize(
    ("pace", "patience"),
    [
        (
            stepping(200),
            Patience(look=6_000, stopped=10_000, sure=10_000, unsure=105_000, hopeless=1_800_000),
        ),
        (
            stepping(*[200] * 20, 60_000),
            Patience(look=90_000, stopped=10_000, sure=120_000, unsure=120_000, hopeless=1_800_000),
        ),
        (
            Pace(stepped_ms=1_000_000),
            Patience(look=30_000, stopped=10_000, sure=600_000, unsure=600_000, hopeless=1_800_000),
        ),
        (
            Pace(stepped_ms=0).stepped(45_000),
            Patience(look=30_000, stopped=10_000, sure=600_000, unsure=600_000, hopeless=1_800_000),
        ),
    ],
    ids=["in_its_stride", "after_a_long_step", "before_its_first_step", "after_its_first_step"],
)
def test_patience_is_longest_for_what_may_be_in_order(pace, patience):
    """A stopped rank never is; a pause may be, until the others give up waiting."""
    assert patience_for(pace, LIMITS, collective_timeout_ms=TIMEOUT_MS) == patience


def test_fast_run_is_judged_within_the_promised_time():
    """Looks at 6, 8 and 10 s, and one second for the slowest answer: below 15 s."""
    patience = patience_for(stepping(200), LIMITS, collective_timeout_ms=TIMEOUT_MS)
    looks_ms = [patience.look + n * LIMITS.look_again_ms for n in range(3)]
    assert max(*looks_ms, patience.sure) + 1_000 < 15_000


def test_long_step_is_forgotten_after_enough_ordinary_ones():
    """One pause does not make a run unwatched for ever."""
    pace = stepping(200).stepped(1_060_000)
    assert pace.longest_ms == 60_000
    for count in range(GAPS_MAX):
        pace = pace.stepped(1_060_000 + 200 * (count + 1))
    assert (pace.usual_ms, pace.longest_ms, len(pace.gaps_ms)) == (200, 200, GAPS_MAX)


def test_new_generation_keeps_the_pace_and_has_no_step_yet():
    """How long a restart took is no step's time."""
    pace = stepping(200).begun(2_000_000)
    assert pace == Pace(stepped_ms=2_000_000, gaps_ms=(200,))
    assert pace.stepped(2_030_000) == Pace(stepped_ms=2_030_000, gaps_ms=(200,), progressed=True)


def test_monitor_that_could_not_see_begins_to_wait_anew():
    """A machine that was paused as a whole, monitor and all, has lost no step."""
    pace = stepping(200)
    after_ms = pace.stepped_ms + 3_600_000
    assert is_stuck(after_ms, pace, LIMITS)
    assert is_stuck(after_ms + 5_900, pace.excused(after_ms), LIMITS) is None


@given(
    gaps_ms=st.lists(st.integers(0, 10**8), max_size=GAPS_MAX).map(tuple),
    progressed=st.booleans(),
    timeout_ms=st.integers(0, 10**8),
    silent_ms=st.integers(0, 10**9),
)
def test_surer_explanations_are_never_waited_for_longer(gaps_ms, progressed, timeout_ms, silent_ms):
    """Whatever the pace: stopped, sure, unsure, hopeless; and a look comes when it is due."""
    pace = Pace(stepped_ms=0, gaps_ms=gaps_ms, progressed=progressed)
    patience = patience_for(pace, LIMITS, collective_timeout_ms=timeout_ms)
    assert patience.stopped <= patience.sure <= patience.unsure <= patience.hopeless
    assert (is_stuck(silent_ms, pace, LIMITS) is not None) == (silent_ms >= patience.look)
