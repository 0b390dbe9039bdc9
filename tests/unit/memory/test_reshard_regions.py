"""Blocks against a count of their elements."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from everstep.memory.regions import Region, overlap, without


@st.composite
def regions(draw: st.DrawFn, dims: int) -> Region:
    """Return a block of up to 4 elements a side, near the corner."""
    begin = draw(st.tuples(*[st.integers(0, 4)] * dims))
    shape = draw(st.tuples(*[st.integers(0, 4)] * dims))
    return Region(begin, shape)


@st.composite
def several(draw: st.DrawFn) -> list[Region]:
    """Return blocks of the same number of dimensions, 0 to 3."""
    dims = draw(st.integers(0, 3))
    return draw(st.lists(regions(dims), min_size=2, max_size=4))


def cells(region: Region) -> set[tuple[int, ...]]:
    """List the elements."""
    return set(product(*map(range, region.begin, region.end)))


@given(found=several())
def test_overlap_is_what_both_have(found):
    """Element by element; None when that is nothing."""
    one, other = found[:2]
    shared = overlap(one, other)
    assert (cells(shared) if shared is not None else set()) == cells(one) & cells(other)
    assert shared is None or shared.size == len(cells(shared))
    assert shared == overlap(other, one)


@given(found=several())
def test_rest_is_disjoint_and_is_what_no_cut_has(found):
    """Every element that is left is in exactly one of the blocks."""
    region, *cuts = found
    left = without(region, cuts)
    counted = [cell for one in left for cell in cells(one)]
    assert len(counted) == len(set(counted))
    assert set(counted) == cells(region).difference(*map(cells, cuts))


@given(found=several())
def test_slices_cut_the_block_out_of_the_one_around_it(found):
    """Counted from where that begins."""
    one, other = found[:2]
    shared = overlap(one, other)
    if shared is None:
        return
    slices = shared.within(one)
    inside = product(*(range(s.start, s.stop) for s in slices))
    moved = {tuple(i + b for i, b in zip(cell, one.begin, strict=True)) for cell in inside}
    assert moved == cells(shared)


def test_scalar_is_one_element_and_an_empty_block_none():
    """A counter is covered by a counter; an empty shard covers, and wants, nothing."""
    scalar = Region((), ())
    assert (scalar.size, overlap(scalar, scalar), without(scalar, [scalar])) == (1, scalar, ())
    assert without(scalar, []) == (scalar,)
    empty = Region((5, 0), (0, 4))
    assert without(empty, []) == ()
    assert overlap(empty, Region((0, 0), (9, 4))) is None


def test_block_is_written_as_python_slices():
    """Messages name it so."""
    assert str(Region((2, 0), (3, 4))) == "[2:5, 0:4]"
