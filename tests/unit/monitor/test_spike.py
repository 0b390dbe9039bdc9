"""When a loss counts as raised, which batches are left out then, and what is only noted."""

from __future__ import annotations

import math
import re
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.corrections import PositionRange
from everstep.core.record import changed
from everstep.monitor.detectors.spike import (
    RECENT_STEPS,
    Course,
    Found,
    Kind,
    Point,
    Settled,
    follow,
    resumed,
)
from everstep.monitor.events import Action, NumericsRules

RULES = NumericsRules(on_spike="roll_back", window_steps=64, window_steps_min=16)
NOTE = changed(RULES, on_spike="note")


def usual(step: int, **fields: object) -> Point:
    """A point of a run whose loss falls slowly and scatters by a per cent or two."""
    scatter = 1 + 0.02 * math.sin(2.4 * step)
    loss = 4.0 * step**-0.1 * scatter
    return changed(
        Point(step=step, position=step - 1, loss=loss, grad_norm=1.0 + 0.2 * math.cos(1.7 * step)),
        **fields,
    )


def run(*points: Point, rules: NumericsRules = RULES, course: Course | None = None):
    """Follow the points; returns what is remembered and all that was said."""
    said: list[Found | Settled] = []

    def take(course: Course, point: Point) -> Course:
        course, new = follow(course, point, rules)
        said.extend(new)
        return course

    return reduce(take, points, course or Course()), said


def steps(first: int, last: int, **fields: object) -> list[Point]:
    """Usual points, with some fields changed."""
    return [usual(step, **fields) for step in range(first, last + 1)]


def test_usual_run_says_nothing():
    """Neither the fall nor the scatter of a loss is a spike."""
    course, said = run(*steps(1, 300))
    assert said == []
    assert (len(course.window), course.window[-1].step) == (64, 300)


def test_loss_that_stays_up_goes_back_before_it_and_leaves_its_batches_out():
    """Suspect are the step before the first raised loss, whose update may have done it, and on."""
    course, said = run(*steps(1, 50), *steps(51, 53, loss=9.0))
    (found,) = said
    assert (found.kind, found.action) == (Kind.LOSS_SPIKE, Action.ROLL_BACK)
    assert (found.step, found.suspect_from_step) == (53, 50)
    assert found.skipped == (PositionRange(first=49, end=53),)
    assert "raised since step 51, 3 steps in a row: 9 at step 53" in found.reason
    assert course.judged


def falling(step: int) -> float:
    """A loss that falls from 6 to 3 within some fifty steps, and scatters by 6 %."""
    return (3.0 + 3.0 * math.exp(-step / 20)) * math.exp(0.06 * math.sin(2.4 * step))


@pytest.mark.parametrize("at", [80, 100, 130, 200])
def test_jump_is_seen_while_the_loss_falls_steeply(at: int):
    """The fall is in the whole window's deviation, and not in that of the newest steps."""
    before = [usual(step, loss=falling(step)) for step in range(1, at)]
    raised = [usual(step, loss=1.6 * falling(step)) for step in range(at, at + 3)]
    _, said = run(*before, *raised, rules=NumericsRules(on_spike="roll_back"))
    assert [found.kind for found in said] == [Kind.LOSS_SPIKE]
    assert said[0].suspect_from_step == at - 1
    newest = min(at - 1, RECENT_STEPS)
    assert (
        f"the median of the newest 16 sound steps, by the deviation of {newest} from a line "
        "through them;"
    ) in said[0].reason


def test_steep_fall_that_ends_is_no_rise():
    """What is usual just now lags behind the fall, and is above where it ends."""
    fall = [usual(step, loss=6.0 * 0.97**step) for step in range(1, 100)]
    end = [usual(step, loss=6.0 * 0.97**100) for step in range(100, 140)]
    assert run(*fall, *end, rules=NumericsRules(on_spike="roll_back"))[1] == []


def test_loss_that_creeps_up_is_seen_by_the_long_window():
    """Step by step it stays with the newest ones, and far above what it was."""
    flat = [usual(step, loss=3.0 + 0.01 * math.sin(2.4 * step)) for step in range(1, 200)]
    creep = [usual(step, loss=3.0 * 1.002 ** (step - 199)) for step in range(200, 260)]
    _, said = run(*flat, *creep, rules=NumericsRules(on_spike="roll_back"))
    assert [found.kind for found in said] == [Kind.LOSS_SPIKE]
    assert re.search(
        r"above 3\S*, the median of 2\d\d sound steps, by their deviation from it;", said[0].reason
    )


def test_spike_is_said_once_a_generation():
    """What follows is the same trouble; after going back it would be another."""
    course, _ = run(*steps(1, 50), *steps(51, 53, loss=9.0))
    course, said = run(*steps(54, 60, loss=9.0), course=course)
    assert said == []
    _, said = run(*steps(49, 50), *steps(51, 53, loss=9.0), course=resumed(course, 48))
    assert [found.step for found in said] == [53]


def test_spike_that_began_before_it_could_be_measured_is_dated_to_its_begin():
    """A monitor had just started: its window was not full, and took the first raised points in."""
    few = RULES.window_steps_min - 2
    _, said = run(*steps(1, few), *steps(few + 1, few + 5, loss=9.0))
    (found,) = said
    assert (found.step, found.suspect_from_step) == (few + 5, few)
    assert found.skipped == (PositionRange(first=few - 1, end=few + 5),)
    assert f"since step {few + 1}, 3 steps in a row after 2 that came too early" in found.reason


def behind_a_jump(first: int, last: int, **fields: object) -> list[Point]:
    """Steps whose batches lie behind seven that are left out already."""
    return [usual(step, position=step + 6, **fields) for step in range(first, last + 1)]


@pytest.mark.parametrize("skip_before", [1, 3])
def test_batches_are_left_out_across_those_that_are_left_out_already(skip_before: int):
    """The step before the jump in positions may have done it: its batch is not the one before."""
    rules = changed(RULES, skip_before=skip_before)
    _, said = run(*steps(1, 50), *behind_a_jump(51, 53, loss=9.0), rules=rules)
    (found,) = said
    assert found.suspect_from_step == 51 - skip_before
    assert found.skipped == (PositionRange(first=50 - skip_before, end=60),)
    bad = behind_a_jump(51, 53, skipped=True, loss=math.nan)
    _, (_, found) = run(*steps(1, 50), *bad, rules=rules)
    assert found.skipped == (PositionRange(first=50 - skip_before, end=60),)


def test_batches_of_steps_that_were_not_seen_are_counted_on_from_those_that_were():
    """Somewhere among them positions have jumped: rather too many batches than too few."""
    _, said = run(*steps(1, 40), *behind_a_jump(51, 53, loss=9.0))
    assert said[0].skipped == (PositionRange(first=39, end=60),)


def test_batches_are_counted_back_where_no_position_was_kept():
    """An older version kept none."""
    course, _ = run(*steps(1, 50))
    kept = tuple(changed(sound, position=None) for sound in course.window)
    _, said = run(*steps(51, 53, loss=9.0), course=Course(window=kept))
    assert said[0].skipped == (PositionRange(first=49, end=53),)


def test_spike_that_began_unseen_is_gone_back_behind_all_that_was_not_seen():
    """While the bus or the monitor was away the state may have gone bad at any step."""
    _, said = run(*steps(1, 40), *steps(51, 53, loss=9.0))
    (found,) = said
    assert (found.step, found.suspect_from_step) == (53, 40)
    assert found.skipped == (PositionRange(first=39, end=53),)
    assert "since step 41, 3 steps in a row after 10 that were not seen" in found.reason


def test_hard_batch_is_over_with_its_step():
    """Two raised losses in a row heal by themselves, as often as they like."""
    points = [
        usual(step, **({"loss": 9.0} if step % 10 in {0, 1} else {})) for step in range(1, 99)
    ]
    assert run(*points)[1] == []


def test_norm_alone_says_nothing_and_with_a_raised_loss_it_does():
    """Norms have heavy tails: BLOOM's rose four-thousandfold and healed by itself."""
    assert run(*steps(1, 50), *steps(51, 99, grad_norm=960.0))[1] == []
    somewhat = [usual(step, loss=usual(step).loss * 1.12) for step in range(51, 54)]
    assert run(*steps(1, 50), *somewhat)[1] == []
    both = [changed(point, grad_norm=960.0) for point in somewhat]
    assert [found.step for found in run(*steps(1, 50), *both)[1]] == [53]


def test_nothing_is_judged_before_there_is_a_window():
    """The first losses of a run fall steeply and scatter widely."""
    assert run(*steps(1, 8), *steps(9, 15, loss=9.0))[1] == []


def test_loss_that_does_not_scatter_is_not_judged_by_its_last_digits():
    """Half a per cent is the least that counts for a deviation."""
    flat = [Point(step=s, position=s - 1, loss=2.0, grad_norm=1.0) for s in range(1, 41)]
    after = [changed(flat[0], step=s, loss=2.05) for s in range(41, 60)]
    assert run(*flat, *after)[1] == []
    after = [changed(point, loss=2.07) for point in after]
    assert [found.step for found in run(*flat, *after)[1]] == [43]


def test_loss_that_is_only_rounding_is_not_measured():
    """A toy that has learnt its data by heart: factors of ten mean nothing, a real loss does."""
    toy = [
        Point(step=s, position=s - 1, loss=10.0 ** (-13 + s % 97 / 20), grad_norm=1e-9)
        for s in range(1, 300)
    ]
    assert run(*toy)[1] == []
    after = [changed(toy[0], step=s, loss=1e-3) for s in range(300, 303)]
    assert [found.step for found in run(*toy, *after)[1]] == [302]


def test_loss_that_may_be_negative_is_measured_as_it_is():
    """A logarithm would call every sign change a spike."""
    low = [Point(step=s, position=s - 1, loss=math.sin(s), grad_norm=1.0) for s in range(1, 200)]
    assert run(*low)[1] == []
    high = [changed(low[0], step=s, loss=50.0) for s in range(200, 203)]
    assert [found.step for found in run(*low, *high)[1]] == [202]


def test_going_back_forgets_what_is_undone():
    """The window ends where the run goes on from."""
    course, _ = run(*steps(1, 50), *steps(51, 52, loss=9.0))
    back = resumed(course, 40)
    assert (back.window[-1].step, back.raised, back.judged) == (40, (), False)


def test_noted_spike_is_over_when_the_loss_is_usual_again():
    """The run goes on; no state is doubted."""
    course, said = run(*steps(1, 50), *steps(51, 58, loss=9.0), usual(59), rules=NOTE)
    found, over = said
    assert (found.action, found.suspect_from_step, found.step) == (Action.NOTE, 0, 53)
    assert over == Settled(kind=Kind.LOSS_SPIKE, step=59)
    assert [
        found.step for found in run(*steps(60, 62, loss=9.0), rules=NOTE, course=course)[1]
    ] == [62]


def test_noted_spike_that_stays_is_usual_after_a_window():
    """A loss that was changed on purpose is no trouble for ever."""
    course, said = run(*steps(1, 50), *steps(51, 114, loss=9.0), rules=NOTE)
    assert [type(one) for one in said] == [Found, Settled]
    assert {sound.loss for sound in course.window} == {9.0}
    assert not course.raised
    assert not course.judged


def test_losses_are_not_looked_at_when_that_is_off():
    """A skipped step is still noted."""
    rules = changed(RULES, on_spike="off")
    _, said = run(
        *steps(1, 50), *steps(51, 70, loss=9.0), *steps(71, 90, skipped=True), rules=rules
    )
    assert [one.kind for one in said] == [Kind.STEP_SKIPPED]


def test_skipped_step_is_noted_with_whose_it_was_and_over_with_the_next():
    """Nothing is lost but that step."""
    bad = usual(20, skipped=True, loss=math.nan, ranks=(3,), step_time_ms=700.0, at_ms=5)
    _, (found, over) = run(*steps(1, 19), bad, usual(21))
    assert (found.kind, found.action, found.ranks) == (Kind.STEP_SKIPPED, Action.NOTE, (3,))
    assert "step 20 (batch 19) was not finite (of rank 3)" in found.reason
    assert found.failed_at_ms == 5
    assert over == Settled(kind=Kind.STEP_SKIPPED, step=21, lost_steps=1, lost_ms=700)


def test_gradients_that_stay_bad_go_back():
    """Three in a row are no single batch's doing."""
    bad = steps(20, 22, skipped=True, loss=math.nan, ranks=(1, 2))
    course, said = run(*steps(1, 19), *bad)
    noted, found = said
    assert noted.kind is Kind.STEP_SKIPPED
    assert (found.kind, found.action) == (Kind.NON_FINITE, Action.ROLL_BACK)
    assert (found.suspect_from_step, found.ranks) == (19, (1, 2))
    assert found.skipped == (PositionRange(first=18, end=22),)
    assert run(*steps(23, 30, skipped=True), course=course)[1] == []


def test_missing_loss_is_no_spike():
    """A script need not report one."""
    assert run(*steps(1, 50, loss=math.nan))[1] == []


@pytest.mark.parametrize("first", [1, 2])
def test_spike_at_the_very_beginning_does_not_reach_before_it(first: int):
    """There is no step before the first, and no batch before position 0."""
    rules = changed(RULES, window_steps_min=0, skip_before=10)
    window = Course(window=run(*steps(1, 30))[0].window)
    _, said = run(*steps(first, first + 2, loss=99.0), rules=rules, course=window)
    assert [(f.suspect_from_step, f.skipped[0].first) for f in said] == [(1, 0)]


@given(st.lists(st.sampled_from(["usual", "raised", "skipped"]), max_size=80), st.booleans())
def test_what_is_noted_is_settled_and_going_back_is_said_once(moods: list[str], note: bool):
    """Whatever comes: at most one rollback, and nothing is settled that was not said."""
    how = {"usual": {}, "raised": {"loss": 50.0}, "skipped": {"skipped": True}}
    points = [usual(30 + i, **how[mood]) for i, mood in enumerate(moods, 1)]
    start, _ = run(*steps(1, 30))
    _, said = run(*points, rules=NOTE if note else RULES, course=start)
    assert sum(1 for one in said if isinstance(one, Found) and one.action is Action.ROLL_BACK) <= 1
    pending: set[str] = set()
    for one in said:
        if isinstance(one, Settled):
            assert one.kind in pending
            pending.discard(one.kind)
        elif one.action is Action.NOTE:
            assert one.kind not in pending
            pending.add(one.kind)
