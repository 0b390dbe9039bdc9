"""Tensors come out of a slot whole and checked, by one thread or several, or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.train.endings import StateMismatchError
from everstep.train.slot_source import PIECE_BYTES, SlotDamagedError, SlotSource, dtype_name

pytestmark = pytest.mark.torch
OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=1)


@pytest.fixture
def kept() -> dict[str, Tensor]:
    """Tensors of all kinds: scalar, empty, odd sizes, several pieces, other dtypes."""
    torch.manual_seed(3)
    return {
        "scalar": torch.tensor(7.5),
        "empty": torch.empty(0, 4),
        "matrix": torch.randn(5, 7),
        "half": torch.randn(33).to(torch.bfloat16),
        "mask": torch.rand(19) > 0.5,
        "piece": torch.randint(0, 255, (PIECE_BYTES,), dtype=torch.uint8),
        "pieces": torch.randn(3 * PIECE_BYTES // 4 + 5),
    }


@pytest.fixture
def slot(tmp_path, kept) -> Path:
    """A slot that holds them."""
    path = tmp_path / "slot-0"
    specs = [
        TensorSpec(
            name=name,
            dtype=dtype_name(one),
            shape=tuple(one.shape),
            bytes=one.numel() * one.element_size(),
        )
        for name, one in kept.items()
    ]
    writer = SlotWriter(path, OWNER, specs)
    writer.begin()
    for name, one in kept.items():
        if one.numel():
            writer.buffers[name][:] = one.reshape(-1).view(torch.uint8).numpy().tobytes()
    writer.commit(step=3, data_state={}, objects={})
    writer.close()
    return path


def flip(path: Path, name: str) -> None:
    """Flip the last bit of a tensor."""
    with SlotReader(path) as reader:
        entry = reader.entry(name)
    with path.open("r+b") as file:
        file.seek(entry.offset + entry.bytes - 1)
        byte = file.read(1)[0]
        file.seek(entry.offset + entry.bytes - 1)
        file.write(bytes([byte ^ 1]))


@contextlib.contextmanager
def opened(path: Path, threads: int = 1):
    """A source over a slot file."""
    with SlotReader(path) as reader, contextlib.closing(SlotSource(reader, threads)) as source:
        yield source


@pytest.mark.parametrize("threads", [1, 3])
def test_every_tensor_is_filled_as_it_was_kept(slot, kept, threads):
    """Bit for bit, also into places that are not contiguous or require gradients."""
    with opened(slot, threads) as source:
        filled = {name: torch.zeros_like(one) for name, one in kept.items()}
        filled["matrix"] = torch.zeros(7, 5).t()
        filled["pieces"].requires_grad_()
        for name, one in filled.items():
            source.fill(name, one)
        made = source.make("half")
        source.finish()
    for name, one in filled.items():
        assert torch.equal(one, kept[name]), name
    assert torch.equal(made, kept["half"])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["scalar", "matrix", "half", "piece", "pieces"])
def test_damaged_tensor_is_named_by_the_end_at_the_latest(slot, kept, threads, name):
    """Whether it was asked for or not."""
    flip(slot, name)
    named = pytest.raises(SlotDamagedError, match=f"{name}: checksum expected")
    with opened(slot, threads) as source, named:
        source.finish()

    def fill_all(source: SlotSource) -> None:
        for other, one in kept.items():
            source.fill(other, torch.zeros_like(one))
        source.finish()

    with opened(slot, threads) as source, named:
        fill_all(source)


def test_file_that_was_cut_short_is_damaged(slot, kept):
    """Reading past its end is no reason to die without a word."""
    with SlotReader(slot) as reader, contextlib.closing(SlotSource(reader)) as source:
        os.truncate(slot, reader.entry("pieces").offset + 4096)
        source.fill("pieces", torch.zeros_like(kept["pieces"]))
        with pytest.raises(SlotDamagedError, match="the file ends within tensor pieces"):
            source.finish()


def test_file_that_ends_between_small_neighbours_is_damaged(slot, kept):
    """They are read in one call, which then brings less."""
    with SlotReader(slot) as reader, contextlib.closing(SlotSource(reader)) as source:
        os.truncate(slot, reader.entry("half").offset + 1)
        for name in ("scalar", "matrix", "half", "mask"):
            source.fill(name, torch.zeros_like(kept[name]))
        with pytest.raises(SlotDamagedError, match="the file ends within tensor half"):
            source.finish()


def test_tensor_of_another_shape_is_refused_before_a_byte_is_copied(slot):
    """It is the code that does not fit, and no other copy would."""
    target = torch.zeros(7, 5)
    with opened(slot) as source, pytest.raises(StateMismatchError, match=r"float32\[5, 7\]"):
        source.fill("matrix", target)
    assert not target.any()
