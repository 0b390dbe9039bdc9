import pytest

from everstep.fleet.cadence import Cadence

CADENCE = Cadence(
    step_ms=1_000,
    memory_every=2,
    memory_stall_ms=100,
    replicate_ms=500,
    object_every=6,
    object_stall_ms=250,
    upload_ms=3_000,
)


def _by_hand(first, last):
    """Return the time by going through the steps one by one."""
    total = 0
    for step in range(first + 1, last + 1):
        total += 1_000 + (100 if step % 2 == 0 else 0) + (250 if step % 6 == 0 else 0)
    return total


@pytest.mark.parametrize("first", [0, 1, 5, 6, 7])
def test_elapsed_time_equals_that_of_single_steps(first):
    """Arithmetic and going step by step agree."""
    for last in range(first, first + 20):
        assert CADENCE.elapsed_ms(first, last) == _by_hand(first, last)


@pytest.mark.parametrize("time_ms", [0, 999, 1_000, 2_099, 2_100, 6_549, 6_550, 20_000])
def test_reached_step_is_the_last_that_fits(time_ms):
    """One more would not have fitted."""
    step = CADENCE.reached(3, time_ms)
    assert CADENCE.elapsed_ms(3, step) <= time_ms < CADENCE.elapsed_ms(3, step + 1)


def test_copies_and_checkpoints_are_there_when_they_are_through():
    """A copy needs its replication, a checkpoint its upload."""
    done_ms = CADENCE.elapsed_ms(0, 12)
    assert CADENCE.copied(0, done_ms, 2) == [10, 12]
    assert CADENCE.replicated(0, done_ms, 2) == [8, 10]
    assert CADENCE.replicated(0, done_ms + 500, 2) == [10, 12]
    assert CADENCE.durable(0, done_ms, 9) == [6]
    assert CADENCE.durable(0, done_ms + 3_000, 9) == [6, 12]
    assert CADENCE.durable(6, done_ms + 3_000, 9) == [12, 18]


def test_nothing_is_saved_where_saving_is_off():
    """0 stands for never."""
    bare = Cadence(step_ms=10)
    assert bare.copied(0, 1_000, 2) == []
    assert bare.durable(0, 1_000, 2) == []
