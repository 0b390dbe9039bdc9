"""The keyed permutation."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.data.permutation import Permutation

GOLDEN = [834, 334, 278, 999, 224, 702, 842, 451]
GOLDEN_LARGE = 5157841173447


@given(size=st.integers(1, 3000), keys=st.lists(st.integers(), max_size=3))
@settings(max_examples=60, deadline=None)
def test_permutation_of_any_size_hits_every_index_once(size, keys):
    """It is a bijection of the range onto itself."""
    permutation = Permutation(size, *keys)
    assert sorted(permutation(index) for index in range(size)) == list(range(size))


def test_permutation_is_the_same_on_every_machine():
    """These numbers may never change: checkpoints resume by them."""
    permutation = Permutation(1000, 42, 3)
    assert [permutation(index) for index in range(8)] == GOLDEN
    assert Permutation(15 * 10**12, 42, 3)(14 * 10**12) == GOLDEN_LARGE


def test_permutation_of_15e12_indices_needs_no_memory_and_stays_in_range():
    """Any index of a huge range is computed at once."""
    size = 15 * 10**12
    permutation = Permutation(size, 1)
    values = [permutation(index) for index in range(0, size, size // 97)]
    assert all(0 <= value < size for value in values)
    assert len(set(values)) == len(values)


def test_keys_select_different_orders():
    """Another seed or another epoch is another order."""
    orders = {
        tuple(Permutation(50, seed, epoch)(index) for index in range(50))
        for seed in range(5)
        for epoch in range(5)
    }
    assert len(orders) == 25


def test_neighbours_do_not_stay_neighbours():
    """A shuffle that keeps neighbours together would show in the loss."""
    permutation = Permutation(10_000, 7)
    close = sum(abs(permutation(i) - permutation(i + 1)) < 100 for i in range(9_999))
    assert close < 400  # about 2 % of uniformly random pairs are that close


@pytest.mark.parametrize("index", [-1, 10])
def test_index_outside_the_range_is_refused(index):
    """Asking for a sample that does not exist is an error, not another sample."""
    with pytest.raises(IndexError):
        Permutation(10, 1)(index)


def test_empty_permutation_is_refused():
    """There is no permutation of nothing."""
    with pytest.raises(ValueError, match="size 0"):
        Permutation(0, 1)
