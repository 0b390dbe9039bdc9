"""A registry's keeper on in-memory adapters that die or go away on request."""

from __future__ import annotations

from dataclasses import replace

import xxhash
from tests.unit.checkpoint_registry.words import report

from everstep.checkpoint_registry.catalog import MemoryCatalog
from everstep.checkpoint_registry.codec import (
    CHECKPOINTS,
    HISTORIES,
    checkpoint_stream,
)
from everstep.checkpoint_registry.events import Shard
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.state import Phase
from everstep.core.errors import Unavailable
from everstep.core.placement import Layout
from everstep.eventstore.memory import MemoryStore
from everstep.memory.slot import (
    PREAMBLE_BYTES,
    Entry,
    Preamble,
    SlotHeader,
    TorchFile,
    header_encoder,
)
from everstep.objectstore.memory import MemoryObjects
from everstep.service.handler import Handler

LAYOUT = Layout(tp=2)


class KilledError(Exception):
    """The process died here."""


class Clock:
    """Stands still."""

    def now_ms(self) -> int:
        """Return one time."""
        return 1_000

    def monotonic_ms(self) -> float:
        """Return the same."""
        return 1_000.0


class Ids:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def new_id(self, prefix: str) -> str:
        """Return the next one."""
        self.count += 1
        return f"{prefix}-{self.count}"


class Objects(MemoryObjects):
    """Dies before one of its calls, or does not answer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left: int | None = None
        self.away = False

    def count(self) -> None:
        """Count a call."""
        if self.away:
            raise Unavailable("the object store is away")
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise KilledError
            self.calls_left -= 1

    async def put(self, key, data):
        self.count()
        await super().put(key, data)

    async def delete(self, key):
        self.count()
        await super().delete(key)

    async def list(self, prefix):
        self.count()
        return await super().list(prefix)

    async def chunks(self, key, *, chunk_bytes):
        self.count()
        async for chunk in super().chunks(key, chunk_bytes=chunk_bytes):
            yield chunk


class Store(MemoryStore):
    """Dies before or right after one of its appends."""

    appends_left: int | None = None
    after = False

    async def append(self, *args, **kwargs):
        dies = self.appends_left == 0
        if self.appends_left is not None:
            self.appends_left -= 1
        if dies and not self.after:
            raise KilledError
        stored = await super().append(*args, **kwargs)
        if dies:
            raise KilledError
        return stored


class World:
    """A store, objects, and registries that come and go."""

    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        self.store = Store(clock=Clock(), projections=[self.catalog])
        self.objects = Objects()
        self.ids = Ids()

    def keeper(self) -> CheckpointKeeper:
        """Start a registry that remembers nothing."""
        return CheckpointKeeper(
            self.handler(), self.histories(), self.catalog, self.objects, Clock()
        )

    def handler(self) -> Handler:
        """Return a handler of checkpoints without a cache."""
        return Handler(CHECKPOINTS, self.store, self.ids)

    def histories(self) -> Handler:
        """Return a handler of histories without a cache."""
        return Handler(HISTORIES, self.store, self.ids)

    async def upload(
        self,
        step: int,
        *,
        bad_rank: int = -1,
        absent_rank: int = -1,
        wholes: tuple[int, ...] = (4, 4),
    ) -> None:
        """Store two ranks' objects and report them; one may differ from what is said."""
        base = report(0, 1, step=step)
        shards = []
        for shard in base.shards:
            data = slot_of(shard.rank, step, whole=wholes[shard.rank])
            shards.append(said(shard, data))
            stored = b"rotten" if shard.rank == bad_rank else data
            if shard.rank != absent_rank:
                await MemoryObjects.put(self.objects, shard.uri, stored)
        done = await self.handler().handle(replace(base, shards=tuple(shards)))
        assert done.rejected is None

    async def phase(self, step: int) -> Phase:
        """Return how far a checkpoint is."""
        return (await self.handler().state(checkpoint_stream("job", 1, step))).phase

    async def events(self, step: int) -> list[str]:
        """Return what happened to a checkpoint."""
        return [e.type for e in await self.store.load(checkpoint_stream("job", 1, step))]

    async def keys(self, step: int) -> list[str]:
        """Return the names of a checkpoint's objects."""
        found = await MemoryObjects.list(self.objects, f"jobs/job/step-{step:08d}/")
        return [info.key.rpartition("/")[2] for info in found]


def slot_of(rank: int, step: int, *, whole: int = 4) -> bytes:
    """Return a rank's slot: its half of a vector, as a file of torch's would hold it."""
    payload = bytes(64)
    entry = Entry(
        name="model.w",
        dtype="float32",
        shape=(2,),
        offset=PREAMBLE_BYTES + 16,
        bytes=8,
        torch=TorchFile(
            offset=PREAMBLE_BYTES,
            bytes=40,
            path=("model", "w"),
            whole=(whole,),
            offsets=(2 * rank,),
        ),
        checksum="",
    )
    header = header_encoder.encode(
        SlotHeader(
            job_id="job",
            rank=rank,
            world_size=2,
            step=step,
            generation=1,
            data_state={},
            entries=(entry,),
        )
    )
    preamble = Preamble(
        valid=True,
        step=step,
        generation=1,
        payload_bytes=len(payload),
        header_bytes=len(header),
        header_checksum=xxhash.xxh3_64_intdigest(header),
    )
    return preamble.pack() + payload + header


def said(shard: Shard, data: bytes) -> Shard:
    """Return the shard as an agent that uploaded ``data`` reports it."""
    return replace(shard, bytes=len(data), checksum=xxhash.xxh3_128_hexdigest(data))
