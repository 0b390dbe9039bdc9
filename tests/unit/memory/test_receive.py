"""A snapshot that comes head first: checked while it comes, valid only when all of it is right."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from everstep.core.errors import CorruptData
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.receive import StreamReceiver
from everstep.memory.slot import (
    PREAMBLE_BYTES,
    SlotHeader,
    StoredObject,
    header_encoder,
    read_preamble,
)
from everstep.memory.slot_file import SlotFile, Target, WrittenSlotFile
from everstep.memory.writer import Owner, SlotWriter, TensorSpec

OWNER = Owner(job_id="job-1", rank=3, world_size=8, generation=2)
SPECS = (
    TensorSpec(name="first", dtype="uint8", shape=(0,), bytes=0),
    TensorSpec(name="weight", dtype="float32", shape=(3, 50), bytes=600),
    TensorSpec(name="empty", dtype="float32", shape=(0, 5), bytes=0),
    TensorSpec(name="bias", dtype="uint8", shape=(7,), bytes=7),
    TensorSpec(name="last", dtype="uint8", shape=(0,), bytes=0),
)


def write(path: Path, *, step: int = 4, **objects: bytes) -> tuple[bytearray, int]:
    """Write a snapshot; returns its bytes as they lie in the file, and how many are the header."""
    writer = SlotWriter(path, OWNER, SPECS)
    writer.begin()
    for number, buffer in enumerate(writer.buffers.values()):
        buffer[:] = bytes([step + number]) * len(buffer)
    writer.commit(step=step, data_state={"position": step}, objects=objects)
    writer.close()
    preamble = read_preamble(path)
    return bytearray(path.read_bytes()[: preamble.slot_bytes]), preamble.header_bytes


def receive(
    file: Target, data: bytes, *, header_bytes: int, step: int = 4, chunk: int = 50
) -> None:
    """Receive a slot's bytes, cut into chunks."""
    behind = len(data) - header_bytes
    receiver = StreamReceiver(file, len(data), header_bytes)
    receiver.take_head(bytes(data[:PREAMBLE_BYTES] + data[behind:]))
    payload = memoryview(data)[PREAMBLE_BYTES:behind]
    while receiver.left_bytes:
        with receiver.space(chunk) as space:
            count = len(space)
            space[:] = payload[:count]
        payload = payload[count:]
        receiver.advance(count)
    receiver.commit(job_id="job-1", rank=3, step=step)


@pytest.fixture(params=["mapped", "written"])
def replica(request, tmp_path):
    """A file to receive into, of either kind."""
    path = tmp_path / "replica"
    mapped = request.param == "mapped"
    with contextlib.closing(SlotFile(path, 100_000) if mapped else WrittenSlotFile(path)) as file:
        yield file


@pytest.mark.parametrize("chunk", [1, 13, 63, 64, 65, 599, 600, 601, 100_000])
def test_snapshot_however_it_is_cut_arrives_as_it_was_sent(tmp_path, replica, chunk):
    """Tensors end within chunks and chunks within tensors; empty ones lie anywhere."""
    sent, header_bytes = write(tmp_path / "slot-0", notes=b"\x81")
    receive(replica, sent, header_bytes=header_bytes, chunk=chunk)
    assert replica.path.read_bytes()[: len(sent)] == sent
    assert verify_slot(replica.path).step == 4


def test_file_takes_one_snapshot_after_the_other(tmp_path, replica):
    """Headers grow and shrink; nothing of an earlier snapshot shows in a later one."""
    for step, note in ((4, b"x"), (5, b"y" * 5_000), (6, b"")):
        sent, header_bytes = write(tmp_path / "slot-0", step=step, notes=note)
        receive(replica, sent, header_bytes=header_bytes, step=step)
        assert replica.path.read_bytes()[: len(sent)] == sent
        assert verify_slot(replica.path).step == step


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (PREAMBLE_BYTES, "weight: checksum expected"),
        (PREAMBLE_BYTES + 640, "bias: checksum expected"),
        (-1, "header checksum expected"),
        (12, "does not begin like a complete snapshot"),
        (0, "does not begin like a complete snapshot"),
        (16, "preamble says step 5"),
        (32, "were announced"),
    ],
)
def test_wrong_bit_is_refused_by_name_and_leaves_no_snapshot(tmp_path, replica, at, message):
    """Wherever it is, what came never becomes valid, and the older content is gone."""
    older, header_bytes = write(tmp_path / "slot-0", step=3)
    receive(replica, older, header_bytes=header_bytes, step=3)
    sent, header_bytes = write(tmp_path / "slot-0")
    sent[at] ^= 1
    with pytest.raises(CorruptData, match=message):
        receive(replica, sent, header_bytes=header_bytes)
    assert read_preamble(replica.path) is None


def test_wrong_object_is_refused_by_name(tmp_path, replica):
    """Objects lie in the header, each with a checksum of its own."""
    write(tmp_path / "slot-0", notes=b"12345678")
    header = header_of(tmp_path / "slot-0")
    wrong = StoredObject(data=b"x", checksum=header.objects["notes"].checksum)
    sent, header_bytes = forged(tmp_path / "slot-0", replace(header, objects={"notes": wrong}))
    with pytest.raises(CorruptData, match="notes: checksum expected"):
        receive(replica, sent, header_bytes=header_bytes)
    assert read_preamble(replica.path) is None


def test_tensors_that_overlap_are_refused(tmp_path, replica):
    """A header may fit its checksum and still describe what no writer writes."""
    write(tmp_path / "slot-0")
    header = header_of(tmp_path / "slot-0")
    moved = tuple(replace(one, offset=PREAMBLE_BYTES) for one in header.entries)
    sent, header_bytes = forged(tmp_path / "slot-0", replace(header, entries=moved))
    with pytest.raises(CorruptData, match="begins within another one"):
        receive(replica, sent, header_bytes=header_bytes)
    assert read_preamble(replica.path) is None


def header_of(path: Path) -> SlotHeader:
    """Read a snapshot's header."""
    with SlotReader(path) as reader:
        return reader.header


def forged(path: Path, header: SlotHeader) -> tuple[bytearray, int]:
    """Return a snapshot's bytes with another header, whose checksum fits."""
    data = header_encoder.encode(header)
    preamble = read_preamble(path)
    payload = path.read_bytes()[PREAMBLE_BYTES : preamble.header_offset]
    told = replace(preamble, header_bytes=len(data), header_checksum=xxhash.xxh3_64_intdigest(data))
    return bytearray(told.pack() + payload + data), len(data)


def test_another_step_than_announced_is_refused(tmp_path, replica):
    """What comes must be what was asked for."""
    sent, header_bytes = write(tmp_path / "slot-0")
    with pytest.raises(CorruptData, match="expected step 5 of rank 3"):
        receive(replica, sent, header_bytes=header_bytes, step=5)
    assert read_preamble(replica.path) is None


def test_snapshot_that_ends_early_is_no_snapshot(tmp_path, replica):
    """All tensors but the last byte are right, and that is not enough."""
    sent, header_bytes = write(tmp_path / "slot-0")
    behind = len(sent) - header_bytes
    receiver = StreamReceiver(replica, len(sent), header_bytes)
    receiver.take_head(bytes(sent[:PREAMBLE_BYTES] + sent[behind:]))
    with receiver.space(receiver.left_bytes - 1) as space:
        space[:] = sent[PREAMBLE_BYTES : behind - 1]
    receiver.advance(receiver.left_bytes - 1)
    with pytest.raises(CorruptData, match="came before the end"):
        receiver.commit(job_id="job-1", rank=3, step=4)
    assert read_preamble(replica.path) is None


@pytest.mark.parametrize(("size", "header"), [(10, 5), (64, 0), (100, 37), (100, -1)])
def test_sizes_of_no_snapshot_are_refused(replica, size, header):
    """Before a byte comes."""
    with pytest.raises(CorruptData, match="no snapshot"):
        StreamReceiver(replica, size, header)


def test_file_that_was_replaced_is_not_the_same(tmp_path):
    """A mapping is used again only for the very file that lies there, if it is large enough."""
    path = tmp_path / "slot-0"
    with contextlib.closing(SlotFile(path, 1_000)) as file:
        assert file.is_still(path, 1_000)
        assert not file.is_still(path, 1_001)
        path.rename(tmp_path / "moved")
        assert not file.is_still(path, 1_000)
        path.write_bytes(b"x" * 1_000)
        assert not file.is_still(path, 1_000)
