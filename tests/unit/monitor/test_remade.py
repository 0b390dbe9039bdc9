"""Who was wrong at a step is told by making it again, if anything does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.placement import Layout
from everstep.monitor.detectors.remade import Ties
from everstep.monitor.ties import TIES_MAX, Claims, Tie, claims_of, with_tie

LAYOUT = Layout(dp_replicate=2, tp=2)
HOSTS = ("a", "a", "b", "b")
WEIGHTS = ("over 1", 0)  # over replicas, the circle of ranks 0 and 2
OTHERS = ("over 1", 1)
SOUND, BENT, BENT_OTHERWISE, OTHER = range(4)


def claimed(claims: Claims) -> Tie:
    """A tie of ranks 0 and 2."""
    return Tie(step=7, layout=LAYOUT, suspects=(0, 2), claims=claims_of(claims, HOSTS))


TIE = claimed({WEIGHTS: {0: SOUND, 2: BENT}})


def settle(again, *, tie: Tie = TIE, layout: Layout = LAYOUT, hosts=HOSTS):
    """Make the step again."""
    ties = Ties()
    ties.keep(tie)
    return ties.settle(7, again, layout, hosts)


def test_whoever_claimed_something_else_than_comes_out_now_was_wrong():
    """All agree this time."""
    broken = settle({WEIGHTS: {0: SOUND, 2: SOUND}})
    assert (broken.ranks, broken.host, broken.step, broken.agreed) == ((2,), "b", 7, True)
    assert broken.reason == (
        "step 7 was made again and came out everywhere as rank 0 had it the first time: rank 2 had "
        "been wrong"
    )
    assert settle({WEIGHTS: {0: BENT, 2: BENT}}).host == "a"


def test_host_that_has_left_since_was_wrong_all_the_same():
    """What came out elsewhere is what it should have had."""
    broken = settle({WEIGHTS: {0: SOUND, 2: SOUND}}, hosts=("a", "a", "c", "c"))
    assert broken.host == "b"


def test_step_that_comes_out_as_nobody_had_it_tells_nothing():
    """It is another step: batches were left out, or the program does not repeat its bits."""
    assert settle({WEIGHTS: {0: OTHER, 2: OTHER}}) is None
    assert settle({WEIGHTS: {0: OTHER, 2: BENT_OTHERWISE}}) is None


def test_step_of_which_a_part_comes_out_as_nobody_had_it_tells_nothing_either():
    """Then it is another step, and what looks alike is alike by chance or by design."""
    tie = claimed({**TIE.claimed, OTHERS: {0: 8, 2: 9}})
    again = {WEIGHTS: {0: SOUND, 2: SOUND}, OTHERS: {0: 7, 2: 7}}
    assert settle(again, tie=tie) is None


def test_whoever_does_not_come_to_the_same_twice_is_wrong():
    """They differ once more."""
    broken = settle({WEIGHTS: {0: SOUND, 2: BENT_OTHERWISE}})
    assert (broken.ranks, broken.host, broken.agreed) == ((2,), "b", False)
    assert broken.reason.startswith("step 7 was made again, and rank 2 did not come to the same")


def test_two_who_both_repeat_themselves_stay_a_tie():
    """One is wrong each time alike."""
    assert settle({WEIGHTS: {0: SOUND, 2: BENT}}) is None


def test_other_host_in_the_seat_that_differs_proves_nothing_against_the_first():
    """It may be wrong itself."""
    hosts = ("a", "a", "c", "c")
    assert settle({WEIGHTS: {0: SOUND, 2: BENT_OTHERWISE}}, hosts=hosts) is None


@pytest.mark.parametrize("again", [{}, {WEIGHTS: {}}, {WEIGHTS: {2: SOUND}}])
def test_nothing_is_said_before_all_have_told(again):
    """One voice alone is no comparison."""
    assert settle(again) is None


def test_two_others_who_agree_tell_as_well():
    """With three replicas the work of one is made again by another than the first time."""
    tie = claimed({("gradient", 0): {0: 5, 2: 6}})
    assert settle({("gradient", 0): {0: 5, 3: 5}}, tie=tie).host == "b"
    assert settle({("gradient", 0): {0: 6, 3: 6}}, tie=tie).host == "a"


def test_two_hosts_that_were_wrong_at_once_are_nobody():
    """That is not by chance."""
    tie = claimed({WEIGHTS: {0: 8, 2: 9}, OTHERS: {1: 9, 0: 8, 2: 8}})
    again = {WEIGHTS: {0: 8, 2: 8}, OTHERS: {0: 9, 1: 9, 2: 9}}
    assert settle(again, tie=tie) is None


def test_other_layout_is_another_order_of_sums():
    """Bits that differ then accuse nobody."""
    again = {WEIGHTS: {0: SOUND, 2: SOUND}}
    assert settle(again, layout=Layout(dp_replicate=4)) is None
    assert settle(again, hosts=()) is None


def test_tie_is_looked_at_once():
    """What comes later is another history."""
    ties = Ties()
    ties.keep(TIE)
    assert ties.keys(7) == {WEIGHTS}
    assert ties.settle(7, {}, LAYOUT, HOSTS) is None
    assert ties.keys(7) == ()
    assert ties.settle(7, {WEIGHTS: {0: SOUND, 2: SOUND}}, LAYOUT, HOSTS) is None


def test_only_the_newest_are_kept():
    """What nobody ever made again goes."""
    ties = Ties()
    for step in range(TIES_MAX + 3):
        ties.keep(replace(TIE, step=step))
    assert [step for step in range(TIES_MAX + 3) if step in ties] == list(range(3, TIES_MAX + 3))


def test_tie_about_work_stands_beside_one_about_bits_of_the_same_step():
    """Each is told again by itself; a newer one of its kind takes its place."""
    work, newer = replace(TIE, work=True), replace(TIE, suspects=(2,))
    assert with_tie(with_tie((), TIE), work) == (TIE, work)
    assert with_tie((TIE, work), newer) == (newer, work)
    kept = ()
    for step in range(TIES_MAX + 3):
        kept = with_tie(kept, replace(TIE, step=step))
    assert [one.step for one in kept] == list(range(3, TIES_MAX + 3))
