"""Writes slot files in place: clear valid, payload, header, preamble, set valid.

The file is created, sized and touched once; after that a snapshot writes into pages that exist,
which is more than ten times faster, and running out of memory is an error at the start of a run
and not a bus error in the middle of it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import xxhash

from everstep.memory.full import no_room
from everstep.memory.slot import (
    ALIGNMENT_BYTES,
    CHECKSUM_CHARS,
    PREAMBLE_BYTES,
    VALID_OFFSET,
    Entry,
    Preamble,
    StoredObject,
    TorchFile,
    checksum_of,
    header_encoder,
)
from everstep.memory.slot_file import missing_bytes, reserve
from everstep.memory.torch_file import NO_WRAPPING, Wrapping, wrapping

# Of a header beside its entries: random states, data position, what objects with a state_dict keep.
# Grown when it is short, which a full directory may refuse.
_OBJECTS_ROOM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a tensor is to a checkpoint of PyTorch: the part at ``offsets`` of one shaped ``whole``.

    ``path`` leads to it in the nested state dict.
    """

    path: tuple[str, ...]
    whole: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor that a slot is to hold; with a ``part``, as a file of ``torch.save``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    part: Part | None = None

    @property
    def wrapping(self) -> Wrapping:
        """What lies around its bytes."""
        if self.part is None:
            return NO_WRAPPING
        return wrapping(self.dtype, self.shape, self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose snapshots a writer writes."""

    job_id: str
    rank: int
    world_size: int
    generation: int


def plan_entries(specs: Sequence[TensorSpec]) -> tuple[tuple[Entry, ...], int]:
    """Give each tensor its place; returns the entries (checksums zero) and the payload bytes."""
    entries: list[Entry] = []
    offset = PREAMBLE_BYTES
    for spec in specs:
        around = spec.wrapping
        size = len(around.before) + spec.bytes + len(around.behind)
        entries.append(
            Entry(
                name=spec.name,
                dtype=spec.dtype,
                shape=spec.shape,
                offset=offset + len(around.before),
                bytes=spec.bytes,
                torch=_torch_file(spec.part, offset, size),
                checksum="0" * CHECKSUM_CHARS,
            )
        )
        offset += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(entries), offset - PREAMBLE_BYTES


def slot_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return how large a slot file of these tensors is, with room for its header."""
    entries, payload = plan_entries(specs)
    encoded, _ = _encode_entries(entries)
    return PREAMBLE_BYTES + payload + len(encoded) + _OBJECTS_ROOM_BYTES


def _torch_file(part: Part | None, offset: int, size: int) -> TorchFile | None:
    if part is None:
        return None
    return TorchFile(
        offset=offset, bytes=size, path=part.path, whole=part.whole, offsets=part.offsets
    )


class SlotWriter:
    """Writes one slot file again and again.

    Call ``begin``, fill the ``buffer`` of every tensor, call ``commit``.

    Args:
        path: the slot file; its content survives until the first ``begin``.
        owner: goes into every header.
        specs: the tensors of every snapshot, with unique names.

    Raises:
        Unavailable: there is not enough memory for the file.
    """

    def __init__(self, path: Path, owner: Owner, specs: Sequence[TensorSpec]) -> None:
        self.path = path
        self._owner = owner
        entries, self._payload_bytes = plan_entries(specs)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        size = PREAMBLE_BYTES + self._payload_bytes
        self._encoded_entries, places = _encode_entries(entries)
        header_bytes = len(self._encoded_entries) + _OBJECTS_ROOM_BYTES
        _reserve(self._descriptor, path, size + header_bytes)
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._map = mmap.mmap(self._descriptor, size, flags=flags)
        self._view = memoryview(self._map)
        self.buffers: dict[str, memoryview] = {
            entry.name: self._view[entry.offset : entry.offset + entry.bytes] for entry in entries
        }
        assert len(self.buffers) == len(entries), "two tensors have the same name"
        self._unwrapped = list(zip(entries, specs, strict=True))
        self.checksums = [entry.checksum for entry in entries]  # of the newest snapshot, as specs
        self._checksum_places = list(zip(self.buffers.values(), places, strict=True))

    @property
    def memory(self) -> memoryview:
        """All of the file but the header."""
        return self._view

    def _wrap(self, entry: Entry, around: Wrapping) -> None:
        """Write what lies around a tensor's bytes; they never change it."""
        end = entry.offset + entry.bytes
        self._view[entry.offset - len(around.before) : entry.offset] = around.before
        self._view[end : end + len(around.behind)] = around.behind

    def begin(self) -> None:
        """Take the valid flag away: from here on the old snapshot is gone."""
        self._view[VALID_OFFSET : VALID_OFFSET + 4] = b"\0\0\0\0"
        for entry, spec in self._unwrapped:  # not before: somebody may be reading the old one
            self._wrap(entry, spec.wrapping)
        self._unwrapped = []

    def commit(
        self, *, step: int, data_state: dict[str, Any], objects: Mapping[str, bytes]
    ) -> None:
        """Checksum what lies in the buffers, write the header, and make the snapshot valid.

        Args:
            step: completed optimizer steps.
            data_state: the loader's position, as JSON-like values.
            objects: msgpack bytes by name.

        Raises:
            Unavailable: the header has grown, and there is no room for it.
        """
        header = {  # the fields of SlotHeader
            "job_id": self._owner.job_id,
            "rank": self._owner.rank,
            "world_size": self._owner.world_size,
            "step": step,
            "generation": self._owner.generation,
            "data_state": data_state,
            "entries": msgspec.Raw(self._checksummed_entries()),
            "objects": {
                name: StoredObject(data=data, checksum=checksum_of(data))
                for name, data in objects.items()
            },
        }
        data = header_encoder.encode(header)
        _write(self._descriptor, self.path, data, PREAMBLE_BYTES + self._payload_bytes)
        preamble = Preamble(
            valid=False,
            step=step,
            generation=self._owner.generation,
            payload_bytes=self._payload_bytes,
            header_bytes=len(data),
            header_checksum=xxhash.xxh3_64_intdigest(data),
        )
        self._view[:PREAMBLE_BYTES] = preamble.pack()
        self._view[VALID_OFFSET : VALID_OFFSET + 4] = b"\1\0\0\0"

    def _checksummed_entries(self) -> bytearray:
        """Return the entries as msgpack; only the checksums change from one time to the next."""
        encoded = self._encoded_entries
        self.checksums = [checksum_of(buffer) for buffer, _ in self._checksum_places]
        for checksum, (_, place) in zip(self.checksums, self._checksum_places, strict=True):
            encoded[place : place + CHECKSUM_CHARS] = checksum.encode()
        return encoded

    def close(self) -> None:
        """Let go of the file. Tensors made from the buffers must be gone by then."""
        for buffer in self.buffers.values():
            buffer.release()
        self._view.release()
        self._map.close()
        os.close(self._descriptor)


def _encode_entries(entries: Sequence[Entry]) -> tuple[bytearray, list[int]]:
    """Return the entries as a msgpack array, and where each one's checksum lies in it.

    A snapshot a step must cost little: encoding hundreds of entries anew takes longer than hashing
    their tensors.
    """
    parts = [header_encoder.encode(entry) for entry in entries]
    encoded = bytearray(header_encoder.encode([msgspec.Raw(part) for part in parts]))
    places: list[int] = []
    end = len(encoded) - sum(map(len, parts))  # of the array's head
    for part in parts:
        end += len(part)
        places.append(end - CHECKSUM_CHARS)  # the checksum is an entry's last field
    return encoded, places


def _write(descriptor: int, path: Path, data: bytes, begin: int) -> None:
    try:
        written = os.pwrite(descriptor, data, begin)
        os.pwrite(descriptor, data[written:], begin + written)  # of one that ended early: says why
    except OSError as error:
        raise no_room(path, missing_bytes(path, begin + len(data)), error) from None


def _reserve(descriptor: int, path: Path, size: int) -> None:
    try:
        reserve(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise no_room(path, missing_bytes(path, size), error) from None
