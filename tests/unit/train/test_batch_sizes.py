"""From which positions on batches had which sizes, said by step."""

from __future__ import annotations

from everstep.core.corrections import NO_CORRECTIONS, BatchSpan, Corrections
from everstep.data.loader import DataState
from everstep.train.correcting import batch_sizes

HALVED = Corrections(
    batches=(
        BatchSpan(after_step=0, samples=8),
        BatchSpan(after_step=7, samples=4),
        BatchSpan(after_step=20, samples=8),
    )
)


def test_batch_that_never_changed_has_no_sizes():
    """Its place follows from its position alone."""
    assert batch_sizes(DataState(position=9), NO_CORRECTIONS) == ()


def test_position_is_the_step_as_long_as_nothing_is_left_out():
    """Also in a state from before the change."""
    assert batch_sizes(DataState(position=3), HALVED) == ((0, 8), (7, 4), (20, 8))


def test_batches_that_are_left_out_count_as_positions():
    """Steps after them have later positions; what is left out from the very beginning too."""
    state = DataState(position=9).skipping(5, 8).skipping(12, 13)
    assert batch_sizes(state, HALVED) == ((0, 8), (10, 4), (24, 8))
    assert batch_sizes(DataState().skipping(0, 2), HALVED) == ((0, 8), (9, 4), (22, 8))
