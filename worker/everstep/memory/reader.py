"""Reads slot files, and believes nothing that is not checksummed."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from everstep.core.errors import CorruptData, NotFoundError
from everstep.memory.slot import (
    Entry,
    Mismatch,
    Outline,
    SlotHeader,
    checksum_of,
    decode_header,
    decode_outline,
    mismatches_in,
    read_preamble,
    refuse_mismatches,
)


class SlotReader:
    """An open, complete snapshot.

    Raises:
        NotFoundError: there is no complete snapshot in the file.
        CorruptData: the header fails its checksum or contradicts itself.
    """

    def __init__(self, path: Path) -> None:
        preamble = read_preamble(path)
        if preamble is None:
            raise NotFoundError(f"{path} holds no complete snapshot")
        self._file = path.open("rb", buffering=0)
        self._map = mmap.mmap(self._file.fileno(), preamble.slot_bytes, access=mmap.ACCESS_COPY)
        self._view = memoryview(self._map)
        self.path = path
        self.preamble = preamble
        header = bytes(self._view[preamble.header_offset : preamble.slot_bytes])
        try:
            self.header: SlotHeader = decode_header(header, preamble, str(path))
        except CorruptData:
            self.close()
            raise
        self._entries = {entry.name: entry for entry in self.header.entries}

    @property
    def step(self) -> int:
        """The snapshot's step."""
        return self.header.step

    def entry(self, name: str) -> Entry | None:
        """Return what the header says of a tensor, None if it has no such tensor."""
        return self._entries.get(name)

    def tensor(self, entry: Entry) -> memoryview:
        """Return a tensor's bytes where they lie; valid until ``close``."""
        return self._view[entry.offset : entry.offset + entry.bytes]

    def read_into(self, entry: Entry, begin: int, target: memoryview) -> None:
        """Copy a part of a tensor's bytes, without looking at them.

        For whoever copies everything: mapping and unmapping all pages costs as much as the copy.

        Args:
            entry: of the tensor.
            begin: from where on [bytes within the tensor].
            target: to be filled.

        Raises:
            CorruptData: the file ends before.
        """
        file, offset = self._file.fileno(), entry.offset + begin
        while target:
            count = os.preadv(file, (target,), offset)
            if not count:
                raise CorruptData(f"{self.path}: the file ends within tensor {entry.name}")
            offset, target = offset + count, target[count:]

    def read_run(self, entries: Sequence[Entry], targets: Sequence[memoryview]) -> None:
        """Copy whole tensors that lie one behind the other, in one call.

        Args:
            entries: by offset; what lies between two of them is read, too, and thrown away.
            targets: as large as the tensors, each.

        Raises:
            CorruptData: the file ends before.
        """
        buffers: list[memoryview] = []
        end = entries[0].offset
        for entry, target in zip(entries, targets, strict=True):
            if entry.offset > end:
                buffers.append(memoryview(bytearray(entry.offset - end)))
            buffers.append(target)
            end = entry.offset + entry.bytes
        count = os.preadv(self._file.fileno(), buffers, entries[0].offset)
        if count < end - entries[0].offset:
            for entry, target in zip(entries, targets, strict=True):
                self.read_into(entry, 0, target)

    def object_data(self, name: str) -> bytes | None:
        """Return an object's msgpack bytes, None if there is no such object.

        Raises:
            CorruptData: they fail their checksum.
        """
        stored = self.header.objects.get(name)
        if stored is None:
            return None
        got = checksum_of(stored.data)
        if got != stored.checksum:
            problem = Mismatch(name=name, expected=stored.checksum, got=got)
            raise CorruptData(f"{self.path}: object {problem}")
        return stored.data

    def mismatches(self) -> tuple[Mismatch, ...]:
        """Check every tensor and object; return those whose bytes are wrong."""
        return mismatches_in(self._view, self.header)

    def verify(self) -> SlotHeader:
        """Check every tensor and object and return the header.

        Raises:
            CorruptData: names each wrong one with both checksums.
        """
        refuse_mismatches(self.mismatches(), self.header, str(self.path))
        return self.header

    def checksum(self) -> str:
        """Return the xxh3-128 of the whole snapshot as it is uploaded, in hex."""
        return checksum_of(self._view)

    def close(self) -> None:
        """Let go of the mapping."""
        self._view.release()
        self._file.close()
        with contextlib.suppress(BufferError):  # a tensor is still looked at: it goes with the last
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def verify_slot(path: Path) -> SlotHeader:
    """Check a whole file and return its header.

    Raises:
        NotFoundError: there is no complete snapshot in the file.
        CorruptData: names what is wrong.
    """
    with SlotReader(path) as reader:
        return reader.verify()


def outline_in(path: Path) -> Outline | None:
    """Return what the header of a snapshot says; None when there is no whole one.

    The tensors are not looked at, and may be written anew meanwhile: then the header does not fit.
    """
    preamble = read_preamble(path)
    if preamble is None:
        return None
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), preamble.header_bytes, preamble.header_offset)
    try:
        return decode_outline(data, preamble, str(path))
    except CorruptData:
        return None
