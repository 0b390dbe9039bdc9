"""The slot file: written, read back, broken in every way and refused."""

import os
from pathlib import Path

import pytest

from everstep.core.errors import CorruptData, NotFoundError
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.receive import SlotReceiver
from everstep.memory.slot import PREAMBLE_BYTES, read_preamble
from everstep.memory.writer import Owner, SlotWriter, TensorSpec

OWNER = Owner(job_id="job-1", rank=3, world_size=8, generation=2)
SPECS = (
    TensorSpec(name="model.weight", dtype="float32", shape=(3, 5), bytes=60),
    TensorSpec(name="model.empty", dtype="float32", shape=(0, 5), bytes=0),
    TensorSpec(name="rng.torch", dtype="uint8", shape=(7,), bytes=7),
)


def write(path: Path, *, step: int = 4, fill: int = 1) -> SlotWriter:
    """Write a snapshot and return its open writer."""
    writer = SlotWriter(path, OWNER, SPECS)
    writer.begin()
    for number, name in enumerate(sorted(writer.buffers)):
        writer.buffers[name][:] = bytes([fill + number]) * len(writer.buffers[name])
    writer.commit(step=step, data_state={"position": step}, objects={"scheduler": b"\x81"})
    return writer


def test_snapshot_written_is_read_back_whole(tmp_path):
    """Header, tensors and objects come back as they were given."""
    write(tmp_path / "slot-0").close()
    with SlotReader(tmp_path / "slot-0") as reader:
        header = reader.verify()
        assert (header.job_id, header.rank, header.world_size) == ("job-1", 3, 8)
        assert (header.step, header.generation, header.data_state) == (4, 2, {"position": 4})
        entry = reader.entry("model.weight")
        assert entry is not None
        assert bytes(reader.tensor(entry)) == b"\x02" * 60
        assert entry.offset % 64 == 0
        assert reader.object_data("scheduler") == b"\x81"
        assert reader.object_data("nothing") is None


def test_preamble_of_unusable_files_is_none(tmp_path):
    """Absent, empty, short, foreign and truncated files claim nothing."""
    path = tmp_path / "slot-0"
    assert read_preamble(path) is None
    path.write_bytes(b"")
    assert read_preamble(path) is None
    path.write_bytes(b"EVERSLOT")
    assert read_preamble(path) is None
    path.write_bytes(b"x" * 200)
    assert read_preamble(path) is None
    path.unlink()
    write(path).close()
    preamble = read_preamble(path)
    assert preamble is not None
    os.truncate(path, preamble.slot_bytes - 1)
    assert read_preamble(path) is None
    with pytest.raises(NotFoundError):
        SlotReader(path)


def test_begun_snapshot_is_not_valid_until_commit(tmp_path):
    """Between begin and commit neither the old nor the new snapshot is there."""
    writer = write(tmp_path / "slot-0")
    writer.begin()
    assert read_preamble(tmp_path / "slot-0") is None
    writer.commit(step=5, data_state={}, objects={})
    preamble = read_preamble(tmp_path / "slot-0")
    assert preamble is not None
    assert preamble.step == 5
    writer.close()


def test_flipped_bit_in_tensor_is_named_with_both_checksums(tmp_path):
    """Verify names the tensor, what was expected and what was found."""
    path = tmp_path / "slot-0"
    writer = write(path)
    entry = next(entry for entry in verify_slot(path).entries if entry.name == "model.weight")
    writer.buffers["model.weight"][7] ^= 1
    writer.close()
    with SlotReader(path) as reader:
        (mismatch,) = reader.mismatches()
        assert mismatch.name == "model.weight"
        assert mismatch.expected == entry.checksum
        assert mismatch.got != entry.checksum
    with pytest.raises(CorruptData, match=rf"model\.weight.*{entry.checksum}.*{mismatch.got}"):
        verify_slot(path)


def test_flipped_bit_in_header_is_refused(tmp_path):
    """A header that fails its checksum is never decoded."""
    path = tmp_path / "slot-0"
    write(path).close()
    preamble = read_preamble(path)
    assert preamble is not None
    data = bytearray(path.read_bytes())
    data[preamble.header_offset + 9] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="header checksum"):
        SlotReader(path)


def test_preamble_step_that_contradicts_header_is_refused(tmp_path):
    """A flipped step in the preamble cannot pass one step for another."""
    path = tmp_path / "slot-0"
    write(path, step=4).close()
    data = bytearray(path.read_bytes())
    data[16] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="preamble says step 5"):
        SlotReader(path)


def test_reopened_slot_keeps_its_snapshot_until_begin(tmp_path):
    """A new process of the same rank must not lose what it is about to restore from."""
    write(tmp_path / "slot-0", step=9).close()
    writer = SlotWriter(tmp_path / "slot-0", OWNER, SPECS)
    assert verify_slot(tmp_path / "slot-0").step == 9
    writer.close()


def received(path: Path, data: bytes, *, step: int = 4, chunk: int = 50) -> None:
    """Receive ``data`` in chunks into a slot file."""
    receiver = SlotReceiver(path, len(data))
    try:
        for start in range(0, len(data), chunk):
            receiver.write(data[start : start + chunk])
        receiver.commit(job_id="job-1", rank=3, step=step)
    finally:
        receiver.close()


def slot_bytes(path: Path) -> bytes:
    """Return the bytes that make up the snapshot in a file."""
    preamble = read_preamble(path)
    assert preamble is not None
    return path.read_bytes()[: preamble.slot_bytes]


@pytest.mark.parametrize("chunk", [1, 13, 63, 64, 65, 100_000])
def test_received_snapshot_equals_the_sent_one(tmp_path, chunk):
    """However the bytes are cut, the same snapshot arrives, also over an older, larger file."""
    write(tmp_path / "slot-0").close()
    sent = slot_bytes(tmp_path / "slot-0")
    (tmp_path / "replica").write_bytes(b"EVERSLOT" + b"\1" * 100_000)
    received(tmp_path / "replica", sent, chunk=chunk)
    assert slot_bytes(tmp_path / "replica") == sent
    assert verify_slot(tmp_path / "replica").step == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "not valid", "other step", "no slot"])
def test_received_damage_is_refused_and_leaves_no_snapshot(tmp_path, damage):
    """What does not check out never becomes valid, and the old content is gone."""
    write(tmp_path / "slot-0").close()
    write(tmp_path / "replica", step=3).close()
    sent = bytearray(slot_bytes(tmp_path / "slot-0"))
    step = 4
    if damage == "cut":
        sent = sent[:-10]
    elif damage == "flipped":
        sent[PREAMBLE_BYTES] ^= 1
    elif damage == "not valid":
        sent[12] = 0
    elif damage == "other step":
        step = 5
    else:
        sent = bytearray(b"x" * 300)
    with pytest.raises(CorruptData):
        received(tmp_path / "replica", bytes(sent), step=step)
    assert read_preamble(tmp_path / "replica") is None


def test_receiver_that_dies_midway_leaves_no_snapshot(tmp_path):
    """Bytes without commit are no snapshot."""
    write(tmp_path / "slot-0").close()
    sent = slot_bytes(tmp_path / "slot-0")
    receiver = SlotReceiver(tmp_path / "replica", len(sent))
    receiver.write(sent)
    assert read_preamble(tmp_path / "replica") is None
    receiver.close()
    assert read_preamble(tmp_path / "replica") is None
