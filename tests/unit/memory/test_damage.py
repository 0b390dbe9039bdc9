"""A snapshot is damaged where only a checksum can tell, and only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.core.errors import CorruptData, NotFoundError
from everstep.memory.damage import flip_file, flip_snapshot
from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner, SlotWriter, TensorSpec

OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=1)


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """A snapshot of two tensors."""
    path = tmp_path / "slot-0"
    specs = [TensorSpec(name=f"model.{n}", dtype="uint8", shape=(9,), bytes=9) for n in "ab"]
    writer = SlotWriter(path, OWNER, specs)
    writer.begin()
    for place in writer.buffers.values():
        place[:] = bytes(range(9))
    writer.commit(step=7, data_state={}, objects={})
    writer.close()
    return path


def test_damage_is_named_by_the_checksum(slot):
    """The header is whole, one tensor is not what it says."""
    damage = flip_snapshot(slot, seed="x", tensor="b")
    assert (damage.step, damage.tensor) == (7, "model.b")
    reader = SlotReader(slot)
    assert [one.name for one in reader.mismatches()] == ["model.b"]
    with pytest.raises(CorruptData, match=r"model\.b: checksum"):
        reader.verify()
    reader.close()


def test_damage_done_twice_is_none(slot):
    """The same seed chooses the same bit."""
    before = slot.read_bytes()
    damage = flip_snapshot(slot, seed="x")
    assert slot.read_bytes() != before
    flip_file(slot, offset=damage.offset, bit=damage.bit)
    assert slot.read_bytes() == before


def test_what_holds_no_snapshot_is_not_damaged(tmp_path, slot):
    """Nor a tensor that is not there."""
    with pytest.raises(NotFoundError, match="no tensor 'c'"):
        flip_snapshot(slot, seed="x", tensor="c")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(NotFoundError, match="no complete snapshot"):
        flip_snapshot(tmp_path / "empty", seed="x")
