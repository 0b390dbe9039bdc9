"""The slot file: one rank's state of one step, readable even if its writer died anywhere.

::

    0     preamble, 64 bytes: magic, format version, valid flag, step, generation,
          payload bytes, header bytes, xxh3-64 of the header
    64    payload: tensors, each aligned to 64 bytes; in durable slots each within what makes it a
          file of torch.save (``torch_file``)
    ...   header: msgpack, directly behind the payload

The valid flag is cleared before the first byte changes and set after the last, so a writer that is
killed leaves a file that nobody takes for a snapshot. Every tensor and object has its own xxh3-128
checksum, so a wrong one is named. Nothing is ever unpickled.

The header lies behind the payload because its size may change from step to step (user objects)
while tensors keep their places: their addresses are taken once and used for every snapshot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import xxhash

from everstep.core.errors import CorruptData

MAGIC: Final = b"EVERSLOT"
FORMAT_VERSION: Final = 1
PREAMBLE_BYTES: Final = 64
CHECKSUM_CHARS: Final = 32  # xxh3-128 in hex
ALIGNMENT_BYTES: Final = 64  # a cache line; every dtype's alignment divides it

_PREAMBLE: Final = struct.Struct("<8sIIqqQQQ8x")
VALID_OFFSET: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Preamble:
    """What the first 64 bytes say."""

    valid: bool
    step: int
    generation: int
    payload_bytes: int
    header_bytes: int
    header_checksum: int  # xxh3-64

    @property
    def header_offset(self) -> int:
        """Where the header begins [bytes from the start of the file]."""
        return PREAMBLE_BYTES + self.payload_bytes

    @property
    def slot_bytes(self) -> int:
        """Bytes that make up the snapshot; the file may be longer."""
        return self.header_offset + self.header_bytes

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        return _PREAMBLE.pack(
            MAGIC,
            FORMAT_VERSION,
            int(self.valid),
            self.step,
            self.generation,
            self.payload_bytes,
            self.header_bytes,
            self.header_checksum,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFile:
    """A tensor's place as a file of ``torch.save``, and as a part of PyTorch's checkpoint.

    ``offset`` counts from the start of the slot file. The tensor is the part at ``offsets`` of one
    of shape ``whole``; ``path`` leads to it in the nested state dict.
    """

    offset: int
    bytes: int
    path: tuple[str, ...]
    whole: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor in the payload; ``offset`` counts from the start of the file."""

    name: str
    dtype: str  # torch's name without the prefix, e.g. "float32"
    shape: tuple[int, ...]
    offset: int
    bytes: int
    torch: TorchFile | None = None
    checksum: str  # xxh3-128, hex; the last field, because SlotWriter changes it in place


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """Small state that is not a tensor, as msgpack bytes."""

    data: bytes
    checksum: str  # xxh3-128, hex


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHeader:
    """Everything about the snapshot but the tensors' bytes."""

    job_id: str
    rank: int
    world_size: int
    step: int
    generation: int
    data_state: dict[str, Any]
    entries: tuple[Entry, ...]
    objects: dict[str, StoredObject] = field(default_factory=dict)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a tensor lies, and what its bytes must come to."""

    name: str
    offset: int
    bytes: int
    checksum: str


class Outline(msgspec.Struct, frozen=True):
    """What checking needs of a header; decoding all of it takes longer than hashing 5 MB."""

    job_id: str
    rank: int
    step: int
    generation: int
    entries: tuple[Place, ...]
    objects: dict[str, StoredObject] = {}


H = TypeVar("H", SlotHeader, Outline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A tensor or object whose bytes are not what the header promises."""

    name: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.name}: checksum expected {self.expected}, got {self.got}"


header_encoder: Final = msgspec.msgpack.Encoder()
_header_decoder: Final = msgspec.msgpack.Decoder(SlotHeader)
_outline_decoder: Final = msgspec.msgpack.Decoder(Outline)


def parse_preamble(data: bytes) -> Preamble | None:
    """Read 64 bytes; None when they are not a preamble of this format."""
    if len(data) < PREAMBLE_BYTES:
        return None
    magic, version, valid, step, generation, payload, header, checksum = _PREAMBLE.unpack_from(data)
    if magic != MAGIC or version != FORMAT_VERSION:
        return None
    return Preamble(
        valid=valid == 1,
        step=step,
        generation=generation,
        payload_bytes=payload,
        header_bytes=header,
        header_checksum=checksum,
    )


def read_preamble(path: Path) -> Preamble | None:
    """Say cheaply what snapshot a file claims to hold.

    Safe at any time: a file that is absent, foreign, cut short or being written gives None. What it
    claims is proven only by ``SlotReader.verify``.
    """
    try:
        with path.open("rb") as file:
            preamble = parse_preamble(file.read(PREAMBLE_BYTES))
            if preamble is None or not preamble.valid:
                return None
            size = file.seek(0, 2)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return preamble if preamble.slot_bytes <= size else None


def invalidate(path: Path) -> None:
    """Make a slot file say that it holds nothing; an absent one stays absent."""
    try:
        with path.open("r+b") as file:
            file.seek(VALID_OFFSET)
            file.write(bytes(4))
    except FileNotFoundError:
        return


def decode_header(data: bytes, preamble: Preamble, where: str) -> SlotHeader:
    """Check and decode header bytes.

    Raises:
        CorruptData: checksum, format, or a step or place that contradicts the preamble.
    """
    return _decode(_header_decoder, data, preamble, where)


def decode_outline(data: bytes, preamble: Preamble, where: str) -> Outline:
    """Check header bytes as ``decode_header`` does, and decode what checking the rest needs."""
    return _decode(_outline_decoder, data, preamble, where)


def _decode(decoder: msgspec.msgpack.Decoder[H], data: bytes, preamble: Preamble, where: str) -> H:
    checksum = xxhash.xxh3_64_intdigest(data)
    if checksum != preamble.header_checksum:
        raise CorruptData(
            f"{where}: header checksum expected {preamble.header_checksum:016x}, "
            f"got {checksum:016x}"
        )
    try:
        header = decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptData(f"{where}: header cannot be decoded: {error}") from None
    if (header.step, header.generation) != (preamble.step, preamble.generation):
        raise CorruptData(
            f"{where}: preamble says step {preamble.step} of generation {preamble.generation}, "
            f"header says step {header.step} of generation {header.generation}"
        )
    for entry in header.entries:
        end = entry.offset + entry.bytes
        if entry.offset < PREAMBLE_BYTES or end > preamble.header_offset or entry.bytes < 0:
            raise CorruptData(
                f"{where}: tensor {entry.name} claims bytes {entry.offset} to {end}, "
                f"outside the payload, which ends at {preamble.header_offset}"
            )
    return header


def checksum_of(data: bytes | memoryview) -> str:
    """Return the xxh3-128 of ``data`` in hex."""
    return xxhash.xxh3_128_hexdigest(data)


def mismatches_in(slot: memoryview, header: SlotHeader) -> tuple[Mismatch, ...]:
    """Check every tensor and object of a whole slot; return those whose bytes are wrong."""
    found: list[Mismatch] = []
    for entry in header.entries:
        got = checksum_of(slot[entry.offset : entry.offset + entry.bytes])
        if got != entry.checksum:
            found.append(Mismatch(name=entry.name, expected=entry.checksum, got=got))
    return (*found, *mismatched_objects(header))


def mismatched_objects(header: SlotHeader | Outline) -> tuple[Mismatch, ...]:
    """Check every object; return those whose bytes are wrong."""
    found: list[Mismatch] = []
    for name, stored in sorted(header.objects.items()):
        got = checksum_of(stored.data)
        if got != stored.checksum:
            found.append(Mismatch(name=name, expected=stored.checksum, got=got))
    return tuple(found)


def refuse_mismatches(
    wrong: tuple[Mismatch, ...], header: SlotHeader | Outline, where: str
) -> None:
    """Raise when anything is wrong.

    Raises:
        CorruptData: names each wrong tensor or object with both checksums.
    """
    if wrong:
        raise CorruptData(
            f"{where}: step {header.step} of rank {header.rank}: "
            + "; ".join(str(item) for item in wrong)
        )
