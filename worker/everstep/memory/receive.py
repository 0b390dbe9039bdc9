"""Takes a snapshot that comes over the network or from the object store into a slot file.

The bytes are written with the valid flag cleared, checked, and only then made valid: a sender that
dies or lies leaves nothing that could be restored from.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from everstep.core.errors import CorruptData, Unavailable
from everstep.memory.slot import (
    PREAMBLE_BYTES,
    VALID_OFFSET,
    Preamble,
    SlotHeader,
    decode_header,
    mismatches_in,
    parse_preamble,
    refuse_mismatches,
)


class SlotReceiver:
    """Writes a slot file from consecutive chunks.

    Args:
        path: the slot file to replace; what it held is gone at once.
        size_bytes: how many bytes will come.

    Raises:
        Unavailable: there is not enough memory for it.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        if size_bytes < PREAMBLE_BYTES:
            raise CorruptData(f"a snapshot for {path} of {size_bytes} bytes is no snapshot")
        self.path = path
        self._size_bytes = size_bytes
        self._received = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(self._descriptor, b"\0" * PREAMBLE_BYTES, 0)
            os.posix_fallocate(self._descriptor, 0, size_bytes)
        except OSError as error:
            os.close(self._descriptor)
            raise Unavailable(
                f"no room for a snapshot of {size_bytes} bytes at {path}: {error.strerror}"
            ) from None
        # Populated in one call: a fault for each page costs three times as much.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._map = mmap.mmap(self._descriptor, size_bytes, flags=flags)
        self._head = b""

    def write(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes.

        Raises:
            CorruptData: more bytes than announced.
        """
        end = self._received + len(chunk)
        if end > self._size_bytes:
            raise CorruptData(f"{self.path}: more than the announced {self._size_bytes} bytes came")
        # The preamble is held back: until commit the file says that it holds nothing.
        missing = PREAMBLE_BYTES - len(self._head)
        if missing > 0:
            self._head += bytes(chunk[:missing])
            chunk = chunk[missing:]
        if len(chunk):
            self._map[end - len(chunk) : end] = chunk
        self._received = end

    def space(self, size_max: int) -> memoryview:
        """Return where the next bytes go, to be filled in place; release it, then ``advance``.

        Not before the preamble has been written: that is held back.
        """
        assert len(self._head) == PREAMBLE_BYTES, "write the preamble first"
        end = min(self._size_bytes, self._received + size_max)
        return memoryview(self._map)[self._received : end]

    def advance(self, count: int) -> None:
        """Say how many bytes of ``space`` have been filled."""
        assert self._received + count <= self._size_bytes
        self._received += count

    def commit(self, *, job_id: str, rank: int, step: int) -> SlotHeader:
        """Check everything and make the snapshot valid.

        Raises:
            CorruptData: it is incomplete, wrong, or not the snapshot that was expected.
        """
        if self._received != self._size_bytes:
            raise CorruptData(
                f"{self.path}: {self._received} of {self._size_bytes} bytes came before the end"
            )
        preamble = self._checked_preamble()
        header_bytes = self._map[preamble.header_offset : preamble.slot_bytes]
        header = decode_header(header_bytes, preamble, str(self.path))
        if (header.job_id, header.rank, header.step) != (job_id, rank, step):
            raise CorruptData(
                f"{self.path}: expected step {step} of rank {rank} of job {job_id}, got step "
                f"{header.step} of rank {header.rank} of job {header.job_id}"
            )
        view = memoryview(self._map)
        try:
            refuse_mismatches(mismatches_in(view, header), header, str(self.path))
        finally:
            view.release()
        self._map[:VALID_OFFSET] = self._head[:VALID_OFFSET]
        self._map[VALID_OFFSET + 4 : PREAMBLE_BYTES] = self._head[VALID_OFFSET + 4 :]
        self._map[VALID_OFFSET : VALID_OFFSET + 4] = b"\1\0\0\0"
        return header

    def close(self) -> None:
        """Let go of the file; without ``commit`` it holds no snapshot."""
        self._map.close()
        os.close(self._descriptor)

    def _checked_preamble(self) -> Preamble:
        preamble = parse_preamble(self._head)
        if preamble is None or not preamble.valid:
            raise CorruptData(f"{self.path}: what came does not begin like a complete snapshot")
        if preamble.slot_bytes != self._size_bytes:
            raise CorruptData(
                f"{self.path}: its preamble says {preamble.slot_bytes} bytes, "
                f"{self._size_bytes} were announced"
            )
        return preamble
