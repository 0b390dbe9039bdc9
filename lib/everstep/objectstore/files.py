"""Reads part of a file in pieces, into one small buffer: what is uploaded is never in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from everstep.core.errors import CorruptData
from everstep.core.ports import Pace

# One copy through the processor's cache; smaller ones spend the time in system calls.
CHUNK_BYTES: Final = 1 << 20


def file_chunks(
    path: str, *, offset: int, size_bytes: int, pace: Pace | None = None
) -> Iterator[memoryview]:
    """Yield ``size_bytes`` of a file from ``offset``; each piece is valid until the next.

    Raises:
        CorruptData: the file is shorter.
    """
    chunk_bytes = CHUNK_BYTES if pace is None else pace.chunk_bytes
    buffer = memoryview(bytearray(min(chunk_bytes, size_bytes)))
    left = size_bytes
    with Path(path).open("rb", buffering=0) as file:
        file.seek(offset)
        while left:
            if pace is not None:
                pace.wait(min(left, len(buffer)))
            count = file.readinto(buffer[:left])
            if not count:
                raise CorruptData(
                    f"{path} ends after {size_bytes - left} of {size_bytes} bytes from {offset}"
                )
            yield buffer[:count]
            left -= count
