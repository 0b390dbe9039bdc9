"""State tensors that a restore makes lie together in memory, and are nobody's but their own."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor

from everstep.memory.slot import ALIGNMENT_BYTES
from everstep.train.moments import LARGE_PAGE_BYTES, LIKE_PARAMETER, PLAIN, make_state

pytestmark = pytest.mark.torch


def described(kind: str, dtype: str = "float32", shape: tuple[int, ...] = ()) -> dict[str, object]:
    """What a snapshot says of a state tensor."""
    return {"kind": kind, "dtype": dtype, "shape": list(shape), "on_cpu": True}


def like(parameter: Tensor, dtype: str = "float32") -> tuple[dict[str, object], Tensor]:
    """A description of one that lies as its parameter does."""
    return described(LIKE_PARAMETER, dtype, tuple(parameter.shape)), parameter


def test_large_state_begins_with_a_large_page_and_no_two_overlap():
    """Each is aligned as a tensor of torch's own, and keeps what is written to it."""
    parameters = [torch.zeros(300, 1001), torch.zeros(7), torch.zeros(1, 300_001)]
    made = make_state([like(one) for one in parameters])
    assert made[0].data_ptr() % LARGE_PAGE_BYTES == 0
    for number, one in enumerate(made):
        assert one.data_ptr() % ALIGNMENT_BYTES == 0
        one.fill_(number)
    for number, (one, parameter) in enumerate(zip(made, parameters, strict=True)):
        assert one.shape == parameter.shape
        assert torch.equal(one, torch.full_like(parameter, number))


def test_one_of_them_is_saved_and_copied_alone():
    """Nobody who keeps one keeps the others."""
    made = make_state([like(torch.zeros(10)), like(torch.zeros(1_000_000))])
    made[0].fill_(3)
    file = io.BytesIO()
    torch.save(made[0], file)
    assert len(file.getvalue()) < 4_096
    assert made[0].untyped_storage().nbytes() == 40
    kept = copy.deepcopy(made[0])
    del made
    assert torch.equal(kept, torch.full((10,), 3.0))


def test_every_kind_comes_as_described():
    """Other dtypes, no elements, another order of elements, plain ones; beside a large one."""
    turned = torch.zeros(5, 7).t()
    made = make_state(
        [
            like(torch.zeros(1_000_000), "bfloat16"),
            like(torch.zeros(0, 4)),
            like(turned),
            (described(PLAIN, "int64", (3,)), turned),
            (described(PLAIN), turned),
            like(torch.zeros(1_000_000)),
        ]
    )
    got = [(one.dtype, tuple(one.shape), one.stride()) for one in made]
    assert got == [
        (torch.bfloat16, (1_000_000,), (1,)),
        (torch.float32, (0, 4), (4, 1)),
        (torch.float32, (7, 5), turned.stride()),
        (torch.int64, (3,), (1,)),
        (torch.float32, (), ()),
        (torch.float32, (1_000_000,), (1,)),
    ]
    assert not any(one.requires_grad for one in made)
