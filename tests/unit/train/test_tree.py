"""Nested state as msgpack."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everstep.train.tree import UnsupportedStateError, decode, encode

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
keys = st.text(max_size=4) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(st.sampled_from(["!tuple", "!int", "!dict"]), inner, max_size=2)
    ),
    max_leaves=10,
)


def through(value):
    """Encode and decode a value; returns it with the names of its tensors."""
    tensors = []
    data = encode(value, "x", tensors)
    kept = dict(tensors)
    return decode(data, kept.__getitem__), sorted(kept)


@given(trees)
def test_tree_comes_back_as_it_was(value):
    """Types included: tuples stay tuples, keys stay what they are, markers are no trap."""
    back, names = through(value)
    assert back == value
    assert repr(back) == repr(value)
    assert names == []


def test_nan_and_sets_and_large_integers_come_back():
    """What msgpack cannot say is wrapped."""
    back, _ = through({"n": float("nan"), "s": {1, 2}, "i": 2**80})
    assert back["n"] != back["n"]
    assert (back["s"], back["i"]) == ({1, 2}, 2**80)


def test_arrays_keep_dtype_and_shape():
    """Numpy's arrays and scalars are not turned into lists and floats."""
    array = np.arange(6, dtype=np.uint32).reshape(2, 3)
    (back, scalar), _ = through([array, np.float32(0.1)])
    assert back.dtype == np.uint32
    assert np.array_equal(back, array)
    assert isinstance(scalar, np.float32)
    assert scalar == np.float32(0.1)


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.str_("x"), np.bytes_(b"x"), np.bool_(1)])
def test_scalars_that_are_pythons_too_keep_their_type(scalar):
    """A rate that was computed with numpy is a float, but none that msgpack takes."""
    (back,), _ = through([scalar])
    assert (type(back), back) == (type(scalar), scalar)


def test_tensors_are_taken_out_under_their_path():
    """The tree keeps a name, the slot keeps the bytes."""
    tensor = torch.arange(3)
    back, names = through({"a": [1, tensor]})
    assert names == ["x.a.1"]
    assert back["a"][1] is tensor


class Name(str):  # noqa: SLOT000 - as users write it
    """A text of the user's own."""


@pytest.mark.parametrize(
    "value", [object(), np.array([object()]), print, {1: complex(1, 2)}, Name("x")]
)
def test_value_that_cannot_be_kept_is_refused_with_its_path(value):
    """Found when the state is tracked, not when it is needed."""
    with pytest.raises(UnsupportedStateError, match=r"x\.state\.0"):
        encode({"state": [value]}, "x", [])
