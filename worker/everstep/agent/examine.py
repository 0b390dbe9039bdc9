"""Checks a durable slot before it is stored for good, in one pass and one small buffer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import xxhash

from everstep.core.errors import NotFoundError
from everstep.memory.slot import (
    Mismatch,
    SlotHeader,
    decode_header,
    mismatched_objects,
    read_preamble,
    refuse_mismatches,
)
from everstep.objectstore.files import file_chunks

PIECE_BYTES: Final = 1 << 20  # both digests read it while it is in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a durable slot holds, checked; ``checksum`` is the xxh3-128 of all that is uploaded."""

    job_id: str
    rank: int
    step: int
    world_size: int
    data_state: str
    bytes: int
    checksum: str


def examine(path: Path) -> Snapshot:
    """Check every tensor and object of a slot, and say what will be stored.

    Raises:
        CorruptData: it went bad in memory; names what.
        NotFoundError: there is no complete snapshot.
    """
    preamble = read_preamble(path)
    if preamble is None:
        raise NotFoundError(f"{path} holds no complete snapshot")
    with path.open("rb") as file:
        data = os.pread(file.fileno(), preamble.header_bytes, preamble.header_offset)
    header = decode_header(data, preamble, str(path))
    whole = xxhash.xxh3_128()
    tensors = tuple(_wrong_tensors(path, header, preamble.slot_bytes, whole))
    refuse_mismatches(tensors + mismatched_objects(header), header, str(path))
    return Snapshot(
        job_id=header.job_id,
        rank=header.rank,
        step=header.step,
        world_size=header.world_size,
        data_state=json.dumps(header.data_state),
        bytes=preamble.slot_bytes,
        checksum=whole.hexdigest(),
    )


def _wrong_tensors(
    path: Path, header: SlotHeader, slot_bytes: int, whole: xxhash.xxh3_128
) -> Iterator[Mismatch]:
    """Read the file once; ``whole`` takes everything, each tensor's digest its own part."""
    done = 0

    def pass_by(until: int, digest: xxhash.xxh3_128 | None) -> None:
        nonlocal done
        if until > done:
            for piece in file_chunks(str(path), offset=done, size_bytes=until - done):
                whole.update(piece)
                if digest is not None:
                    digest.update(piece)
            done = until

    for entry in sorted(header.entries, key=lambda entry: entry.offset):
        digest = xxhash.xxh3_128()
        pass_by(entry.offset, None)
        pass_by(entry.offset + entry.bytes, digest)
        if digest.hexdigest() != entry.checksum:
            yield Mismatch(name=entry.name, expected=entry.checksum, got=digest.hexdigest())
    pass_by(slot_bytes, None)
