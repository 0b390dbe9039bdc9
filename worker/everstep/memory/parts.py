"""Where a snapshot's tensors lie in the tensors of which they are parts.

Only tensors that are cut are listed, in one object of the header: it is the same at every snapshot
and is encoded once. Rejected: fields of each entry, which would be read, and skipped, by everybody
who only checks or copies slots. Slots of checkpoints say it of each entry for PyTorch, too
(``slot.TorchFile``): those of an older version are understood by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from everstep.memory.reader import outline_in
from everstep.memory.regions import Region
from everstep.memory.slot import Entry, SlotHeader

PLACES_NAME: Final = "run.places"
CIRCLES_NAME: Final = "run.circles"

_Places = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
_decoder: Final = msgspec.msgpack.Decoder(_Places)
_circles: Final = msgspec.msgpack.Decoder(dict[int, list[str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """A tensor that other ranks must hold alike: ``over`` as in ``core.circles``."""

    name: str
    over: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPart:
    """A tensor of a snapshot: the block ``region`` of one of shape ``whole``."""

    entry: Entry
    whole: tuple[int, ...]
    region: Region


def encoded_places(places: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> bytes:
    """Return the object.

    Args:
        places: of tensors that are parts, by name: the shape of the whole, where the part begins.
    """
    return msgspec.msgpack.encode(places)


def parts_in(header: SlotHeader) -> dict[str, TensorPart]:
    """Return where the tensors of a snapshot lie; without those of which that is not known."""
    kept = header.objects.get(PLACES_NAME)
    places = _decoder.decode(kept.data) if kept is not None else None
    found: dict[str, TensorPart] = {}
    for entry in header.entries:
        if places is not None:
            whole, begin = places.get(entry.name, (entry.shape, (0,) * len(entry.shape)))
        elif entry.torch is not None:
            whole, begin = entry.torch.whole, entry.torch.offsets
        else:
            continue
        found[entry.name] = TensorPart(entry=entry, whole=whole, region=Region(begin, entry.shape))
    return found


def encoded_circles(circles: Mapping[int, list[str]]) -> bytes:
    """Return the object that says which tensors are held alike, over which dimensions."""
    return msgspec.msgpack.encode(circles)


def shared_in(path: Path) -> tuple[int, tuple[SharedTensor, ...]] | None:
    """Return a snapshot's step and what of it is held alike by others; None if none is whole."""
    outline = outline_in(path)
    if outline is None:
        return None
    kept = outline.objects.get(CIRCLES_NAME)
    circles = _circles.decode(kept.data) if kept is not None else {}
    checksums = {entry.name: entry.checksum for entry in outline.entries}
    return outline.step, tuple(
        SharedTensor(name=name, over=over, checksum=checksums[name])
        for over, names in sorted(circles.items())
        for name in names
        if name in checksums
    )


def lengths_in(header: SlotHeader, tp: int) -> frozenset[int]:
    """Return how long the dimensions may be that data-parallel shards cut, over a whole stage.

    One snapshot does not tell whether ``dp_shard``, ``tp`` or both have cut a dimension, so it
    gives the lengths of all cases.

    Args:
        header: of a snapshot of the stage.
        tp: of its layout.
    """
    cut = {
        length
        for part in parts_in(header).values()
        for length, size in zip(part.whole, part.region.shape, strict=True)
        if length != size
    }
    return frozenset(piece for length in cut for piece in (length, *_chunks(length, tp)))


def _chunks(length: int, count: int) -> set[int]:
    """Return the lengths of the pieces that ``torch.chunk`` cuts."""
    size = -(-length // count)
    return {min(size, length - begin) for begin in range(0, length, size)}
