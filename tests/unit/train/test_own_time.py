"""Adding up what lies outside of waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everstep.train.own_time import ThreadTime


class Running:
    """A clock that is told what time it is."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        """Read it."""
        return self.ms


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), max_size=20), st.floats(0, 1e3))
def test_own_time_is_what_lies_between_waits(phases, rest):
    """Work, wait, work, wait, ..., work."""
    clock = Running()
    own = ThreadTime(clock)
    for work, wait in phases:
        clock.ms += work
        own.wait_begins()
        clock.ms += wait
        own.wait_ends()
    clock.ms += rest
    expected = sum(work for work, _ in phases) + rest
    assert abs(own.so_far_ms() - expected) < 1e-6
    assert abs(own.lap_ms() - expected) < 1e-6
    assert own.so_far_ms() == 0.0


def test_wait_within_a_wait_counts_once():
    """One way to wait may be made of the other."""
    clock = Running()
    own = ThreadTime(clock)
    clock.ms += 5
    own.wait_begins()
    own.wait_begins()
    clock.ms += 100
    own.wait_ends()
    own.wait_ends()
    clock.ms += 2
    assert own.lap_ms() == 7.0


def test_lap_begins_the_next_one():
    """What was counted is not counted again."""
    clock = Running()
    own = ThreadTime(clock)
    clock.ms += 5
    assert own.lap_ms() == 5.0
    clock.ms += 7
    assert own.so_far_ms() == 7.0
    own.wait_begins()
    clock.ms += 100
    own.wait_ends()
    clock.ms += 1
    assert own.lap_ms() == 8.0
