"""Room for a slot file: memory that is there before the first snapshot, and content that stays."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest

from everstep.core.errors import Unavailable
from everstep.memory.slot_file import SlotFile, reserve

SIZE = 3 << 20


@contextlib.contextmanager
def opened(path: Path):
    """A descriptor of a file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def files_no_larger_than(size: int):
    """No room, as far as a test can make it without filling the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def allocated_bytes(path: Path) -> int:
    """How much memory a file has."""
    return path.stat().st_blocks * 512


def test_growing_file_keeps_what_it_holds_and_is_zero_behind(tmp_path):
    """A snapshot that lies there survives until the next one begins."""
    path = tmp_path / "slot-0"
    path.write_bytes(b"held" * 100)
    with opened(path) as descriptor:
        reserve(descriptor, SIZE)
    assert path.read_bytes() == b"held" * 100 + bytes(SIZE - 400)
    assert allocated_bytes(path) >= SIZE


def test_file_with_holes_gets_memory_for_them(tmp_path):
    """A transfer that ended early wrote the end of a file and not its middle."""
    path = tmp_path / "slot-0"
    with opened(path) as descriptor:
        os.pwrite(descriptor, b"end", SIZE - 3)
        reserve(descriptor, SIZE)
    assert path.read_bytes() == bytes(SIZE - 3) + b"end"
    assert allocated_bytes(path) >= SIZE


def test_file_that_is_larger_stays_as_it_is(tmp_path):
    """Its pages may be mapped elsewhere."""
    path = tmp_path / "slot-0"
    path.write_bytes(b"x" * SIZE)
    with opened(path) as descriptor:
        reserve(descriptor, 10)
    assert path.read_bytes() == b"x" * SIZE


def test_file_without_room_is_as_large_as_it_was(tmp_path):
    """What was taken in vain is given back, and the error says what was wanted."""
    path = tmp_path / "slot-0"
    path.write_bytes(b"x" * 100)
    with (
        files_no_larger_than(SIZE // 2),
        pytest.raises(Unavailable, match=rf"no room for slot-0 in {tmp_path}: it needs \d+ more"),
    ):
        SlotFile(path, SIZE)
    assert path.stat().st_size == 100
