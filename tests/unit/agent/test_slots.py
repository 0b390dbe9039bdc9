"""Which slot a snapshot replaces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everstep.agent.store import choose_slot

STEPS = st.dictionaries(st.sampled_from([0, 1]), st.integers(0, 9), max_size=2)


def test_same_step_is_replaced_where_it_lies():
    """A step that is taken again, by a later generation, leaves the other slot alone."""
    assert choose_slot({0: 8, 1: 9}, 8) == 0
    assert choose_slot({0: 8, 1: 9}, 9) == 1


def test_empty_slot_is_taken_first():
    """Nothing is overwritten while there is room."""
    assert choose_slot({}, 5) == 0
    assert choose_slot({0: 4}, 5) == 1
    assert choose_slot({1: 4}, 5) == 0


def test_older_step_is_replaced():
    """The newest stays: it may be the only one that all ranks have."""
    assert choose_slot({0: 4, 1: 5}, 6) == 0
    assert choose_slot({0: 6, 1: 5}, 7) == 1


@given(STEPS, st.integers(0, 20))
def test_newest_other_step_always_survives(steps, step):
    """Whatever lies there, writing one more never costs the newest of the others."""
    slot = choose_slot(steps, step)
    left = {other for index, other in steps.items() if index != slot}
    others = {other for other in steps.values() if other != step}
    assert not others or max(others) in left
