"""Who holds the same bits, and the sum that shows whether they do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.circles import Over, circle_numbers, circle_of, neighbour_of, word_of
from everstep.core.placement import Layout

LAYOUT = Layout(pp=2, dp_replicate=3, dp_shard=2, tp=2)
layouts = st.builds(
    Layout,
    pp=st.integers(1, 2),
    dp_replicate=st.integers(1, 4),
    dp_shard=st.integers(1, 3),
    tp=st.integers(1, 4),
)


def test_circle_is_the_ranks_that_differ_in_these_dimensions_alone():
    """Replicas lie dp_shard * tp ranks apart, tensor-parallel ranks side by side."""
    assert circle_of(LAYOUT, 6, Over.REPLICATE) == (2, 6, 10)
    assert circle_of(LAYOUT, 6, Over.TP) == (6, 7)
    assert circle_of(LAYOUT, 6, Over.REPLICATE | Over.TP) == (2, 3, 6, 7, 10, 11)
    assert circle_of(LAYOUT, 6, 7) == tuple(range(12))
    assert circle_of(LAYOUT, 18, 7) == tuple(range(12, 24))


def test_neighbour_differs_in_one_dimension():
    """None where there is no other."""
    assert neighbour_of(LAYOUT, 10, Over.REPLICATE) == 2
    assert neighbour_of(LAYOUT, 10, Over.SHARD) == 8
    assert neighbour_of(Layout(dp_shard=2), 1, Over.TP) is None


@given(layouts, st.data())
@settings(deadline=None)
def test_sum_is_zero_if_all_agree_and_not_if_one_does_not(layout: Layout, data):
    """Whatever the layout and the dimensions, whoever it is."""
    kinds = data.draw(st.sets(st.integers(1, 7), min_size=1))
    numbers = st.integers(0, 2**64 - 1)
    values = {
        (over, circle): data.draw(numbers)
        for over in kinds
        for circle in {circle_of(layout, rank, over) for rank in range(layout.world_size)}
    }
    told = [
        {over: values[over, circle_of(layout, rank, over)] for over in kinds}
        for rank in range(layout.world_size)
    ]
    assert sum(word_of(layout, rank, told[rank]) for rank in range(layout.world_size)) == 0
    wrong = data.draw(st.integers(0, layout.world_size - 1))
    over = data.draw(st.sampled_from(sorted(kinds)))
    told[wrong][over] ^= 1 << data.draw(st.integers(0, 31))
    alone = len(circle_of(layout, wrong, over)) == 1
    total = sum(word_of(layout, rank, told[rank]) for rank in range(layout.world_size))
    assert (total == 0) == alone


def test_sum_of_a_large_world_is_exact():
    """Nothing is rounded where the numbers are largest: an odd last bit is seen."""
    layout = Layout(dp_replicate=128, dp_shard=2, tp=512)
    full = 2**32 - 1
    first, last = 0, layout.world_size - 1
    others = layout.world_size - 1
    # The first rank of all is the first of each circle, so its word is the largest there is.
    assert word_of(layout, first, {7: full}) == others * full
    assert word_of(layout, first, {7: full}) + others * word_of(layout, last, {7: full}) == 0
    assert 7 * layout.world_size * full < 2**53  # all kinds of circles at once
    total = word_of(layout, first, {7: full}) + (others - 1) * word_of(layout, last, {7: full})
    assert total + word_of(layout, last, {7: full - 1}) == 1


@given(layouts, st.integers(1, 7))
@settings(deadline=None)
def test_circle_is_numbered_by_its_first_rank(layout: Layout, over: int):
    """The same for all in it."""
    numbers = circle_numbers(layout, over)
    assert numbers == tuple(circle_of(layout, rank, over)[0] for rank in range(layout.world_size))
