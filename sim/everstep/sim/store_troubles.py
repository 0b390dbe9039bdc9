"""An object store in trouble: slow, refusing, and storing what it then says it has refused.

What it answers with is as a busy server's: 503 ``SlowDown``, or nothing until the client gives up,
by when the object may well be there. Beside it, what must hold of the objects whatever it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import xxhash

from everstep.checkpoint_registry.object_keys import manifest_key
from everstep.checkpoint_registry.state import Checkpoint, Phase
from everstep.core.errors import Unavailable
from everstep.core.ports import MultipartStore, ObjectInfo, Pace, PartialUpload, StoredPart
from everstep.objectstore.memory import MemoryObjects

if TYPE_CHECKING:
    from everstep.sim.world import World

USUAL_S: Final = 0.01  # an answer, when nothing is wrong
SEED: Final = "store troubles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """How bad it is: seconds for each answer, and shares of the requests.

    ``refused_share`` are refused at once; ``late_share`` are done, and told as refused.
    """

    answer_s: float = USUAL_S
    refused_share: float = 0.0
    late_share: float = 0.0


NONE: Final = Trouble()


class TroubledObjects:
    """Implements ``core.ports.MultipartStore`` on objects in memory; ``trouble`` may change."""

    def __init__(self, memory: MemoryObjects, random: Random) -> None:
        self.memory = memory
        self.trouble = NONE
        self.up = True
        self.refused_count = 0
        self._random = random

    async def put(self, key: str, data: bytes) -> None:
        """Store. Raises Unavailable."""
        await self._reach()
        await self.memory.put(key, data)
        self._answer()

    async def get(self, key: str) -> bytes:
        """Return an object. Raises NotFoundError, Unavailable."""
        await self._reach()
        return await self.memory.get(key)

    async def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream an object. Raises NotFoundError, Unavailable, and that half-way too."""
        await self._reach()
        async for chunk in self.memory.chunks(key, chunk_bytes=chunk_bytes):
            yield chunk
            self._answer()

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """List. Raises Unavailable."""
        await self._reach()
        return await self.memory.list(prefix)

    async def delete(self, key: str) -> None:
        """Remove. Raises Unavailable."""
        await self._reach()
        await self.memory.delete(key)
        self._answer()

    async def unfinished_uploads(self, prefix: str) -> Sequence[PartialUpload]:
        """Return none: nobody uploads by parts here. Raises Unavailable."""
        await self._reach()
        return await self.memory.unfinished_uploads(prefix)

    async def put_file(
        self, key: str, path: str, *, size_bytes: int, offset: int = 0, pace: Pace | None = None
    ) -> None:
        """Nobody has files here."""
        raise AssertionError((key, path, size_bytes, offset, pace))

    async def begin_upload(self, key: str) -> PartialUpload:
        """Nobody uploads by parts here."""
        raise AssertionError(key)

    async def put_part(
        self,
        upload: PartialUpload,
        number: int,
        path: str,
        *,
        size_bytes: int,
        offset: int,
        pace: Pace | None = None,
    ) -> StoredPart:
        """Nobody uploads by parts here."""
        raise AssertionError((upload, number, path, size_bytes, offset, pace))

    async def parts(self, upload: PartialUpload) -> Sequence[StoredPart]:
        """Nobody uploads by parts here."""
        raise AssertionError(upload)

    async def complete_upload(self, upload: PartialUpload, parts: Sequence[StoredPart]) -> None:
        """Nobody uploads by parts here."""
        raise AssertionError((upload, parts))

    async def abort_upload(self, upload: PartialUpload) -> None:
        """Nobody uploads by parts here."""
        raise AssertionError(upload)

    async def _reach(self) -> None:
        await asyncio.sleep(self.trouble.answer_s)
        if not self.up or self._random.random() < self.trouble.refused_share:
            self._refuse()

    def _answer(self) -> None:
        if self._random.random() < self.trouble.late_share:
            self._refuse()

    def _refuse(self) -> None:
        self.refused_count += 1
        raise Unavailable("the object store: SlowDown: please reduce your request rate")


def put_into(world: World) -> TroubledObjects:
    """Give a world such a store, before anything in it starts."""
    found = TroubledObjects(world.objects.memory, world.seeds.of(SEED))
    store: MultipartStore = found
    world.backing.objects = store
    world.objects = found  # type: ignore[assignment]  # all that is asked of it is there
    return found


async def missing(world: World) -> list[str]:
    """Return the objects of complete checkpoints that are gone or are not what was stored."""
    memory: MemoryObjects = world.objects.memory
    there = {info.key for info in await memory.list("")}
    wrong = []
    for one in _complete(world):
        keys = [manifest_key(one.job_id, one.step, one.generation)]
        keys += [shard.uri for shard in one.shards.values()]
        wrong += [key for key in keys if key not in there]
        for shard in one.shards.values():
            if shard.uri in there:
                data = await memory.get(shard.uri)
                if xxhash.xxh3_128_hexdigest(data) != shard.checksum:
                    wrong.append(f"{shard.uri} has changed")
    return wrong


async def leftovers(world: World) -> list[str]:
    """Return the objects that belong to no complete checkpoint."""
    wanted = {(one.job_id, one.step, one.generation) for one in _complete(world)}
    folders = {f"jobs/{job}/step-{step:08d}/gen-{generation}" for job, step, generation in wanted}
    found = await world.objects.memory.list("")
    return [info.key for info in found if info.key.rpartition("/")[0] not in folders]


def _complete(world: World) -> list[Checkpoint]:
    """Return the checkpoints that a restore may take, or could until it was decided otherwise."""
    gone = {
        (job_id, *which) for job_id, kept in world.keeping.jobs.items() for which in kept.given_up
    }
    return [
        one
        for one in world.backing.catalog.every()
        if one.phase is Phase.COMPLETE and (one.job_id, one.step, one.generation) not in gone
    ]
