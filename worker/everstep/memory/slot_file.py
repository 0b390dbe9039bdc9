"""Slot files opened to be received into.

A replica is received again and again into the same two files: they stay mapped, every page touched,
and what comes goes straight to its place (``SlotFile``). A restore comes once: mapping 200 MB and
unmapping them takes 37 ms of processor time and making new pages first 154 ms, while receiving into
a small buffer that stays in the cache and writing that to the file takes 42 and 93 ms with
everything (``WrittenSlotFile``).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final, Protocol

from everstep.core.errors import CorruptData
from everstep.memory.full import no_room
from everstep.memory.slot import PREAMBLE_BYTES, VALID_OFFSET

_ZEROS: Final = memoryview(bytes(512 << 10))  # at a time: what is written stays in the cache
_BLOCK_BYTES: Final = 512  # what st_blocks counts, on every file system


class Target(Protocol):
    """A slot file that a snapshot comes into, in pieces, one behind the other."""

    path: Path

    def space(self, begin: int, size: int) -> memoryview:
        """Return where the bytes from ``begin`` on are to be put; release it."""
        ...

    def arrived(self, begin: int, count: int) -> memoryview:
        """Take ``count`` bytes that were put into ``space``; returns them. Raises Unavailable."""
        ...

    def write(self, begin: int, data: bytes) -> None:
        """Write other bytes. Raises Unavailable."""
        ...

    def make_valid(self, preamble: bytes) -> None:
        """Write the preamble, its valid flag last."""
        ...

    def invalidate(self) -> None:
        """Let the file say that it holds nothing."""
        ...


class SlotFile:
    """A file of at least ``size_bytes`` in memory; what it held is gone at once.

    Args:
        path: created when it is not there.
        size_bytes: how large a snapshot may come.

    Raises:
        CorruptData: no snapshot is so small.
        Unavailable: there is not enough memory for it.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        if size_bytes < PREAMBLE_BYTES:
            raise CorruptData(f"a snapshot for {path} of {size_bytes} bytes is no snapshot")
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(self._descriptor, b"\0" * PREAMBLE_BYTES, 0)
            reserve(self._descriptor, size_bytes)
        except OSError as error:
            os.close(self._descriptor)
            raise no_room(path, missing_bytes(path, size_bytes), error) from None
        # Populated in one call: a fault for each page costs three times as much.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._map = mmap.mmap(self._descriptor, size_bytes, flags=flags)
        self.view = memoryview(self._map)

    def is_still(self, path: Path, size_bytes: int) -> bool:
        """Say whether it is the file that lies at ``path`` now, and large enough."""
        mine = os.fstat(self._descriptor)
        try:
            there = path.stat()
        except OSError:
            return False
        same = (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        return same and size_bytes <= len(self.view) <= there.st_size

    def space(self, begin: int, size: int) -> memoryview:
        """Return the place in the file itself."""
        return self.view[begin : begin + size]

    def arrived(self, begin: int, count: int) -> memoryview:
        """Return what lies there."""
        return self.view[begin : begin + count]

    def write(self, begin: int, data: bytes) -> None:
        """Write other bytes."""
        self.view[begin : begin + len(data)] = data

    def invalidate(self) -> None:
        """Let the file say that it holds nothing."""
        self.view[VALID_OFFSET : VALID_OFFSET + 4] = b"\0\0\0\0"

    def make_valid(self, preamble: bytes) -> None:
        """Write the preamble, its valid flag last."""
        self.view[:VALID_OFFSET] = preamble[:VALID_OFFSET]
        self.view[VALID_OFFSET + 4 : PREAMBLE_BYTES] = preamble[VALID_OFFSET + 4 : PREAMBLE_BYTES]
        self.view[VALID_OFFSET : VALID_OFFSET + 4] = b"\1\0\0\0"

    def close(self) -> None:
        """Let go of the file."""
        self.view.release()
        self._map.close()
        os.close(self._descriptor)


class WrittenSlotFile:
    """A file that is written to once; what it held is gone at once.

    Args:
        path: created when it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._buffer = memoryview(bytearray())
        self.invalidate()

    def space(self, begin: int, size: int) -> memoryview:  # noqa: ARG002 - it is the same for all
        """Return room in the buffer."""
        if len(self._buffer) < size:
            self._buffer = memoryview(bytearray(size))
        return self._buffer[:size]

    def arrived(self, begin: int, count: int) -> memoryview:
        """Write what is in the buffer to its place, and return it. Raises Unavailable."""
        piece = self._buffer[:count]
        self.write(begin, piece)
        return piece

    def write(self, begin: int, data: bytes | memoryview) -> None:
        """Write bytes to the file. Raises Unavailable."""
        rest = memoryview(data)
        try:
            while rest:
                count = os.pwrite(self._descriptor, rest, begin)
                begin, rest = begin + count, rest[count:]
        except OSError as error:
            raise no_room(self.path, len(rest), error) from None

    def invalidate(self) -> None:
        """Let the file say that it holds nothing."""
        self.write(0, b"\0" * PREAMBLE_BYTES)

    def make_valid(self, preamble: bytes) -> None:
        """Write the preamble, its valid flag last."""
        flag = slice(VALID_OFFSET, VALID_OFFSET + 4)
        self.write(0, preamble[: flag.start] + b"\0\0\0\0" + preamble[flag.stop : PREAMBLE_BYTES])
        self.write(VALID_OFFSET, b"\1\0\0\0")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def missing_bytes(path: Path, size_bytes: int) -> int:
    """Return how much memory a file has yet to get until it is so large."""
    return max(0, size_bytes - path.stat().st_blocks * _BLOCK_BYTES)


def reserve(descriptor: int, size: int) -> None:
    """Let a file have memory for ``size`` bytes; what it holds stays, what is new is zero.

    By writing: pages that are only promised (fallocate) are made when they are first touched, one
    by one, which with a mapping of them costs 0.68 s/GB and this 0.49.

    Raises:
        OSError: there is not enough memory; the file is as large as it was.
    """
    status = os.fstat(descriptor)
    end = before = status.st_size
    if status.st_blocks * _BLOCK_BYTES < before:  # a transfer that ended early has left holes
        os.posix_fallocate(descriptor, 0, before)
    try:
        while end < size:
            end += os.pwrite(descriptor, _ZEROS[: size - end], end)
    except OSError:
        os.ftruncate(descriptor, before)
        raise
