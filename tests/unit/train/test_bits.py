"""Fingerprints are equal for equal bits, and for no others that a chip gets wrong."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.train.bits import BLOCK, Digest, weighted_sum

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def on_host(*tensors: torch.Tensor) -> int:
    """Return the fingerprint that CPUs make."""
    digest = Digest()
    for tensor in tensors:
        digest.add(tensor)
    return digest.value()


def on_device(tensor: torch.Tensor) -> int:
    """Return the one that accelerators make, by the same arithmetic on a CPU."""
    return int(weighted_sum(tensor).item())


def flipped(tensor: torch.Tensor, element: int, bit: int) -> torch.Tensor:
    """Return the tensor with one other bit."""
    wrong = tensor.clone()
    words = wrong.view(-1).view(WORDS[wrong.element_size()])
    size = 8 * wrong.element_size()
    mask = -(1 << bit) if bit == size - 1 and size > 8 else 1 << bit
    words[element] ^= mask
    return wrong


@pytest.mark.parametrize("of", [on_host, on_device])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_any_single_bit_is_seen(of, dtype, data):
    """Of any element of any type."""
    size = data.draw(st.integers(1, 300))
    tensor = (torch.arange(size) * 7 % 251).to(dtype)
    element = data.draw(st.integers(0, size - 1))
    bit = data.draw(st.integers(0, 8 * tensor.element_size() - 1))
    assert of(tensor) == of(tensor.clone())
    assert of(flipped(tensor, element, bit)) != of(tensor)


@pytest.mark.parametrize("of", [on_host, on_device])
def test_bits_count_and_not_numbers(of):
    """A NaN is equal to itself, minus zero is not zero, and the order is part of it."""
    assert of(torch.tensor([math.nan, 1.0])) == of(torch.tensor([math.nan, 1.0]))
    assert of(torch.tensor([0.0])) != of(torch.tensor([-0.0]))
    assert of(torch.tensor([1.0, 2.0])) != of(torch.tensor([2.0, 1.0]))


@pytest.mark.parametrize("of", [on_host, on_device])
def test_layout_in_memory_does_not_count(of):
    """A transposed tensor is read in its own order; no dimension at all is one element."""
    tensor = torch.arange(12.0).view(3, 4)
    assert of(tensor.t()) == of(tensor.t().contiguous())
    assert of(tensor.t()) != of(tensor)
    assert of(torch.tensor(3.0)) == of(torch.tensor([3.0]))


def test_every_block_of_a_large_tensor_counts():
    """Also its order among the others."""
    large = torch.zeros(2 * BLOCK + 5)
    found = {on_device(flipped(large, place, 3)) for place in (0, BLOCK, 2 * BLOCK, 2 * BLOCK + 4)}
    assert len({*found, on_device(large)}) == 5


def test_tensors_are_folded_in_the_order_in_which_they_come():
    """Swapped ones are others."""
    one, two = torch.ones(3), torch.zeros(3)
    assert on_host(one, two) == on_host(one, two)
    assert on_host(one, two) != on_host(two, one)


def test_parameter_that_wants_a_gradient_is_read_like_any_other():
    """Nothing is recorded of it."""
    parameter = torch.nn.Parameter(torch.ones(4))
    assert on_host(parameter) == on_host(torch.ones(4))
