"""Kernels give the same bits each time: what every bit-equal resume on an accelerator stands on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from everstep.train.randomness import fix_kernels

pytestmark = pytest.mark.torch

REPEATS = 10
DEVICE = torch.device("cuda")


@pytest.fixture(autouse=True)
def fixed() -> None:
    """As a rank does it."""
    fix_kernels(DEVICE)


def test_attention_adds_its_gradients_up_in_the_same_order():
    """Long enough that many blocks add to one sum."""
    torch.manual_seed(3)
    shape = (2, 8, 4096, 64)
    inputs = [torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]

    def gradients() -> list[Tensor]:
        parts = [one.clone().requires_grad_() for one in inputs]
        out = functional.scaled_dot_product_attention(*parts, is_causal=True)
        torch.autograd.backward(out, out.detach().sin())
        return [one.grad for one in parts if one.grad is not None]

    first = gradients()
    assert all(
        torch.equal(one, other)
        for _ in range(REPEATS)
        for one, other in zip(first, gradients(), strict=True)
    )


def test_embedding_adds_the_gradients_of_a_token_up_in_the_same_order():
    """Few tokens that occur thousands of times."""
    torch.manual_seed(4)
    table = torch.randn(16, 256, device=DEVICE)
    tokens = torch.randint(0, 16, (64, 1024), device=DEVICE)
    upstream = torch.randn(64, 1024, 256, device=DEVICE)

    def gradient() -> Tensor:
        weights = table.clone().requires_grad_()
        torch.autograd.backward(functional.embedding(tokens, weights), upstream)
        assert weights.grad is not None
        return weights.grad

    first = gradient()
    assert all(torch.equal(first, gradient()) for _ in range(REPEATS))
