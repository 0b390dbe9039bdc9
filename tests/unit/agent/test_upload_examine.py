"""What is checked of a durable slot before it is stored for good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everstep.agent.examine import Snapshot, examine
from everstep.core.errors import CorruptData, NotFoundError
from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner, Part, SlotWriter, TensorSpec

SIZES = {"large": 2_500_000, "empty": 0, "small": 3}


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """A slot as a rank leaves it: three tensors that lie within files of torch's, and an object."""
    specs = [
        TensorSpec(
            name=name,
            dtype="uint8",
            shape=(size,),
            bytes=size,
            part=Part(path=("model", name), whole=(size,), offsets=(0,)),
        )
        for name, size in SIZES.items()
    ]
    owner = Owner(job_id="j", rank=3, world_size=4, generation=2)
    writer = SlotWriter(tmp_path / "durable", owner, specs)
    writer.begin()
    for name, size in SIZES.items():
        writer.buffers[name][:] = os.urandom(size)
    writer.commit(step=20, data_state={"position": 7}, objects={"rng": b"\x01"})
    return tmp_path / "durable"


def test_sound_slot_is_described_as_it_will_lie_in_the_store(slot: Path) -> None:
    """Size and checksum are of all bytes, as the reader of whole slots finds them."""
    with SlotReader(slot) as reader:
        assert examine(slot) == Snapshot(
            job_id="j",
            rank=3,
            step=20,
            world_size=4,
            data_state='{"position": 7}',
            bytes=reader.preamble.slot_bytes,
            checksum=reader.checksum(),
        )


@pytest.mark.parametrize("name", ["large", "small"])
def test_flipped_bit_is_found_in_its_tensor(slot: Path, name: str) -> None:
    """It is not stored, and the error says which tensor it was."""
    with SlotReader(slot) as reader:
        entry = reader.entry(name)
        assert entry is not None
        offset = entry.offset + entry.bytes - 1
    data = bytearray(slot.read_bytes())
    data[offset] ^= 1
    slot.write_bytes(data)
    with pytest.raises(CorruptData, match=f"step 20 of rank 3: {name}: checksum expected"):
        examine(slot)


def test_slot_that_is_being_written_is_not_stored(slot: Path) -> None:
    """Its valid flag is cleared."""
    data = bytearray(slot.read_bytes())
    data[12:16] = bytes(4)
    slot.write_bytes(data)
    with pytest.raises(NotFoundError, match="no complete snapshot"):
        examine(slot)
