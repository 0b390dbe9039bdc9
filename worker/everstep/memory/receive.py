"""Takes a snapshot that comes over the network or from the object store into a slot file.

The bytes are written with the valid flag cleared, checked, and only then made valid: a sender that
dies or lies leaves nothing that could be restored from.

Two orders. From the object store a snapshot comes as it lies in its file, and is checked when all
is there. A peer sends preamble and header first: then each tensor is checked while its bytes are
still in the processor's cache, which costs half as much as reading them again from memory.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import xxhash

from everstep.core.errors import CorruptData
from everstep.memory.slot import (
    PREAMBLE_BYTES,
    Mismatch,
    Outline,
    Place,
    Preamble,
    SlotHeader,
    checksum_of,
    decode_header,
    decode_outline,
    mismatched_objects,
    mismatches_in,
    parse_preamble,
    refuse_mismatches,
)
from everstep.memory.slot_file import SlotFile, Target


class SlotReceiver:
    """Writes a slot file from consecutive chunks, in the order of the file.

    Args:
        path: the slot file to replace; what it held is gone at once.
        size_bytes: how many bytes will come.

    Raises:
        CorruptData: no snapshot is so small.
        Unavailable: there is not enough memory for it.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._file = SlotFile(path, size_bytes)
        self._size_bytes = size_bytes
        self._received = 0
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
            self._file.view[end - len(chunk) : end] = chunk
        self._received = end

    def commit(self, *, job_id: str, rank: int, step: int) -> SlotHeader:
        """Check everything and make the snapshot valid.

        Raises:
            CorruptData: it is incomplete, wrong, or not the snapshot that was expected.
        """
        _require_all(self.path, self._received, self._size_bytes)
        preamble = _checked_preamble(self._head, self._size_bytes, self.path)
        view = self._file.view
        header_bytes = bytes(view[preamble.header_offset : preamble.slot_bytes])
        header = decode_header(header_bytes, preamble, str(self.path))
        _require_expected(header, job_id, rank, step, self.path)
        refuse_mismatches(mismatches_in(view, header), header, str(self.path))
        self._file.make_valid(self._head)
        return header

    def close(self) -> None:
        """Let go of the file; without ``commit`` it holds no snapshot."""
        self._file.close()


class StreamReceiver:
    """Takes one snapshot whose head comes first, and checks it while it comes.

    Args:
        file: what it held is gone at once; stays open.
        size_bytes: how many bytes will come.
        header_bytes: how many of them are the header.

    Raises:
        CorruptData: these cannot be the sizes of a snapshot.
    """

    def __init__(self, file: Target, size_bytes: int, header_bytes: int) -> None:
        self.path = file.path
        self.head_bytes = PREAMBLE_BYTES + header_bytes
        if not PREAMBLE_BYTES < self.head_bytes <= size_bytes:
            raise CorruptData(
                f"a snapshot for {file.path} of {size_bytes} bytes with a header of {header_bytes} "
                "is no snapshot"
            )
        file.invalidate()
        self._file = file
        self._size_bytes = size_bytes
        self._payload_end = size_bytes - header_bytes
        self._received = PREAMBLE_BYTES
        self._preamble = b""
        self._outline: Outline | None = None
        self._problem: CorruptData | None = None
        self._places: list[Place] = []  # in their order
        self._next = 0  # of the places
        self._digest = xxhash.xxh3_128()
        self._begun = False  # whether the digest holds the first part of the next place
        self._wrong: list[Mismatch] = []

    @property
    def left_bytes(self) -> int:
        """How much of the payload has not come."""
        return self._payload_end - self._received

    def take_head(self, head: bytes) -> None:
        """Take preamble and header; what is wrong with them is said by ``commit``.

        Not at once, because the payload is on its way whatever the head says, and the connection
        serves on.
        """
        assert len(head) == self.head_bytes, "take the head whole"
        self._preamble, header = head[:PREAMBLE_BYTES], head[PREAMBLE_BYTES:]
        try:
            preamble = _checked_preamble(self._preamble, self._size_bytes, self.path)
            self._outline = decode_outline(header, preamble, str(self.path))
            self._places = _by_place(self._outline, self.path)
        except CorruptData as problem:
            self._problem = problem
            return
        self._file.write(self._payload_end, header)

    def space(self, size_max: int) -> memoryview:
        """Return where the next bytes go, to be filled in place; release it, then ``advance``."""
        return self._file.space(self._received, min(size_max, self.left_bytes))

    def advance(self, count: int) -> None:
        """Say how many bytes of ``space`` have been filled; they are checked at once.

        Raises:
            Unavailable: there is not enough memory for them.
        """
        assert count <= self.left_bytes
        piece = self._file.arrived(self._received, count)
        self._received += count
        self._check(piece)

    def commit(self, *, job_id: str, rank: int, step: int) -> None:
        """Make the snapshot valid. Raises CorruptData as ``SlotReceiver.commit`` does."""
        if self._problem is not None:
            raise self._problem
        _require_all(self.path, self._received, self._payload_end)
        assert self._outline is not None, "take the head first"
        _require_expected(self._outline, job_id, rank, step, self.path)
        self._check(memoryview(b""))  # what follows the last byte: tensors without any
        assert self._next == len(self._places)
        wrong = (*self._wrong, *mismatched_objects(self._outline))
        refuse_mismatches(wrong, self._outline, str(self.path))
        self._file.make_valid(self._preamble)

    def _check(self, piece: memoryview) -> None:
        """Check the newest bytes; those before them have been."""
        first = self._received - len(piece)
        for place in self._places[self._next :]:
            begin, end = place.offset - first, place.offset + place.bytes - first
            if end > len(piece):
                if begin < len(piece):
                    self._digest.update(piece[max(0, begin) :])
                    self._begun = True
                return
            if self._begun:
                self._digest.update(piece[:end])
                got = self._digest.hexdigest()
                self._digest.reset()
                self._begun = False
            else:
                got = checksum_of(piece[begin:end])
            self._next += 1
            if got != place.checksum:
                self._wrong.append(Mismatch(name=place.name, expected=place.checksum, got=got))


def _by_place(outline: Outline, path: Path) -> list[Place]:
    places = sorted(outline.entries, key=attrgetter("offset", "bytes"))
    end = PREAMBLE_BYTES
    for place in places:
        if place.offset < end:
            raise CorruptData(f"{path}: tensor {place.name} begins within another one")
        end = place.offset + place.bytes
    return places


def _require_all(path: Path, received: int, expected: int) -> None:
    if received != expected:
        raise CorruptData(f"{path}: {received} of {expected} bytes came before the end")


def _require_expected(
    header: SlotHeader | Outline, job_id: str, rank: int, step: int, path: Path
) -> None:
    if (header.job_id, header.rank, header.step) != (job_id, rank, step):
        raise CorruptData(
            f"{path}: expected step {step} of rank {rank} of job {job_id}, got step "
            f"{header.step} of rank {header.rank} of job {header.job_id}"
        )


def _checked_preamble(head: bytes, size_bytes: int, path: Path) -> Preamble:
    preamble = parse_preamble(head)
    if preamble is None or not preamble.valid:
        raise CorruptData(f"{path}: what came does not begin like a complete snapshot")
    if preamble.slot_bytes != size_bytes:
        raise CorruptData(
            f"{path}: its preamble says {preamble.slot_bytes} bytes, {size_bytes} were announced"
        )
    return preamble
