"""Reads a checkpoint's objects again: each one whole, or all of them as far as there is time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import xxhash

from everstep.checkpoint_registry.events import Shard
from everstep.core.errors import NotFoundError, Unavailable
from everstep.core.ports import ObjectStore
from everstep.memory.torch_parts import HeaderCatcher

CHUNK_BYTES: Final = 4 << 20  # large enough to be few requests, and 4 at once stay in the caches
READS_MAX: Final = 4  # at once; chosen: one core hashes faster than a store answers four


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look has shown: ``faults`` are sentences by rank; ``read`` objects were read whole."""

    count: int
    faults: dict[int, str]
    read: int

    @property
    def described(self) -> str:
        """Say what was looked at."""
        objects = f"all {self.count} objects are" if self.count > 1 else "its object is"
        said = f"{objects} there with the right size; "
        if self.read == self.count:
            return said + "all were read, and their checksums are right"
        return said + (
            f"{self.read} were read, and their checksums are right; for the others there was no "
            "time"
        )


async def read_back(objects: ObjectStore, shard: Shard) -> str | HeaderCatcher:
    """Read an object; say what is wrong with it, or what its header is. Raises Unavailable."""
    digest, size, catcher = xxhash.xxh3_128(), 0, HeaderCatcher()
    try:
        async for chunk in objects.chunks(shard.uri, chunk_bytes=CHUNK_BYTES):
            digest.update(chunk)
            catcher.take(chunk)
            size += len(chunk)
    except NotFoundError:
        return f"expected {shard.bytes} bytes, got no object"
    if size != shard.bytes:
        return f"expected {shard.bytes} bytes, got {size}"
    if digest.hexdigest() != shard.checksum:
        return f"expected xxh3-128 {shard.checksum}, got {digest.hexdigest()}"
    return catcher


async def look_at(
    objects: ObjectStore, folder: str, shards: Sequence[Shard], *, read_s_max: float
) -> Look:
    """Look whether all objects are there with their sizes, then read them while there is time.

    Args:
        objects: the store.
        folder: that holds the objects.
        shards: what was stored.
        read_s_max: how long to read [s].

    Raises:
        Unavailable: the store does not answer.
    """
    sizes = {found.key: found.size_bytes for found in await objects.list(folder)}
    faults: dict[int, str] = {}
    for shard in shards:
        size = sizes.get(shard.uri)
        if size is None:
            faults[shard.rank] = "there is no such object"
        elif size != shard.bytes:
            faults[shard.rank] = f"expected {shard.bytes} bytes, got {size}"
    left = iter([shard for shard in shards if shard.rank not in faults])
    found: dict[int, str] = {}
    outage: Unavailable | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(read_s_max):
            try:
                async with asyncio.TaskGroup() as readers:
                    for _ in range(READS_MAX):
                        readers.create_task(_read_on(objects, left, found))
            except* Unavailable as errors:
                outage = Unavailable(str(errors.exceptions[0]))
    if outage is not None:
        raise outage
    faults |= {rank: fault for rank, fault in found.items() if fault}
    return Look(count=len(shards), faults=dict(sorted(faults.items())), read=len(found))


async def _read_on(objects: ObjectStore, left: Iterator[Shard], found: dict[int, str]) -> None:
    for shard in left:
        read = await read_back(objects, shard)
        found[shard.rank] = read if isinstance(read, str) else ""
