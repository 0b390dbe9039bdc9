"""Holes in a curve are found, asked about, and given up in the end."""

from __future__ import annotations

from everstep.monitor.curves import PATIENCE_MS, QUESTIONS_MAX, Curves, Hole

LATER = PATIENCE_MS + 1


def curve(*steps: int) -> Curves:
    """A curve of which these steps were told by host h."""
    curves = Curves()
    for step in steps:
        curves.saw("j", 1, step, "h", 0)
    return curves


def test_steps_in_any_order_leave_no_hole():
    """Hosts report in their own order."""
    assert curve(2, 1, 4, 3).holes(LATER) == []


def test_missing_step_is_asked_for_after_patience():
    """Step 3 may still be on its way; after a second it is not."""
    curves = curve(1, 2, 4, 5)
    assert curves.holes(PATIENCE_MS - 1) == []
    assert curves.holes(LATER) == [Hole(job_id="j", after_step=2, hosts=("h",))]


def test_hole_that_was_filled_is_not_asked_about_again():
    """The answer arrives like any other metrics."""
    curves = curve(1, 3)
    assert curves.holes(LATER)
    curves.saw("j", 1, 2, "h", LATER)
    assert curves.holes(3 * LATER) == []


def test_last_step_that_was_never_told_is_missed_at_the_end():
    """Nothing comes after it to show that it is missing."""
    curves = curve(1, 2)
    curves.ended("j", 4, 0)
    assert curves.holes(LATER) == [Hole(job_id="j", after_step=2, hosts=("h",))]
    curves.saw("j", 1, 3, "h", LATER)
    curves.saw("j", 1, 4, "h", LATER)
    assert curves.holes(3 * LATER) == []


def test_hole_that_nobody_can_fill_is_given_up():
    """Its hosts are gone: the curve goes on behind it."""
    curves = curve(1, 3)
    for question in range(QUESTIONS_MAX):
        assert curves.holes((question + 1) * LATER)
    assert curves.holes(9 * LATER) == []
    curves.saw("j", 1, 4, "h", 9 * LATER)
    assert curves.holes(20 * LATER) == []


def test_redone_steps_open_no_hole():
    """After a restart the run does steps again that were told before."""
    curves = curve(1, 2, 3)
    curves.resumed("j", 2, 1)
    for step in (2, 3, 4):
        curves.saw("j", 2, step, "h", 0)
    assert curves.holes(LATER) == []


def test_redone_step_that_was_not_told_again_is_asked_for():
    """That an older generation told of it says nothing about the one that counts."""
    curves = curve(1, 2, 3)
    curves.resumed("j", 2, 1)
    curves.resumed("j", 2, 1)
    curves.saw("j", 2, 3, "h", 0)
    curves.saw("j", 1, 2, "gone", 0)
    assert curves.holes(LATER) == [Hole(job_id="j", after_step=1, hosts=("h",))]


def test_adopted_curve_asks_the_hosts_of_the_watch():
    """A run that ends while the monitor is away: nobody tells anything after it."""
    curves = Curves()
    curves.adopt("j", 1, 7, ("h0", "h1"))
    curves.ended("j", 9, 0)
    assert curves.holes(LATER) == [Hole(job_id="j", after_step=7, hosts=("h0", "h1"))]


def test_adopted_curve_begins_where_the_table_ends():
    """A new monitor asks only for what its predecessor did not write."""
    curves = Curves()
    curves.adopt("j", 1, 7, ())
    curves.saw("j", 1, 10, "h", 0)
    assert curves.holes(LATER) == [Hole(job_id="j", after_step=7, hosts=("h",))]


def test_steps_before_an_audit_begins_are_not_missed():
    """They are another job's, and nobody could tell of them."""
    curves = Curves()
    curves.resumed("audit", 1, 40)
    curves.saw("audit", 1, 41, "h", 0)
    curves.ended("audit", 41, 0)
    assert curves.holes(LATER) == []
