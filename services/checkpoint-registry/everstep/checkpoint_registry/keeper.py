"""Carries checkpoints on: reads them back, completes them, deletes old ones, removes objects.

What is to be done follows from the stored state alone, so a registry that is killed anywhere goes
on from there, and two that work at once do the same harmless work twice:

1. every rank has reported -> read each object back; a bad one is refused by name;
2. all are good -> write PyTorch's ``.metadata``, then the manifest (always the same bytes), then
   ``CheckpointCompleted``;
3. completed -> ``RemovalsDecided`` for what retention gives up: no plan takes it from then on;
   then ``CheckpointDeleted`` for each;
4. deleted -> remove the manifest and ``.metadata``, then the shards, then ``CheckpointPurged``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from everstep.checkpoint_registry.catalog import Catalog, CheckpointId
from everstep.checkpoint_registry.codec import checkpoint_stream, history_stream
from everstep.checkpoint_registry.commands import (
    CheckpointCommand,
    CompleteCheckpoint,
    DeleteCheckpoint,
    HistoryCommand,
    NotePurge,
    RefuseShard,
    ThinOut,
)
from everstep.checkpoint_registry.events import CheckpointEvent, HistoryEvent, Shard
from everstep.checkpoint_registry.manifest import manifest_of
from everstep.checkpoint_registry.object_keys import manifest_key, prefix_of
from everstep.checkpoint_registry.reading import READS_MAX, read_back
from everstep.checkpoint_registry.state import Checkpoint, History, Phase
from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.ports import ObjectStore
from everstep.core.system import Clock
from everstep.memory.torch_parts import Described, described, torch_files
from everstep.objectstore.torch_checkpoint import METADATA_NAME
from everstep.service.handler import Handler

DELETES_MAX: Final = 16  # at once; they carry no data
# Commits of this process wake the keeper; this finds what another instance left undone.
POLL_S: Final = 2.0

_log = logging.getLogger(__name__)


class CheckpointKeeper:
    """The registry's process manager."""

    def __init__(
        self,
        checkpoints: Handler[CheckpointCommand, Checkpoint, CheckpointEvent],
        histories: Handler[HistoryCommand, History, HistoryEvent],
        catalog: Catalog,
        objects: ObjectStore,
        clock: Clock,
    ) -> None:
        self._checkpoints = checkpoints
        self._histories = histories
        self._catalog = catalog
        self._objects = objects
        self._clock = clock
        self._woken = asyncio.Event()
        self._reads = asyncio.Semaphore(READS_MAX)
        self._deletes = asyncio.Semaphore(DELETES_MAX)
        # What was read back and found good of checkpoints that are not complete yet, so that one
        # bad shard does not make all others be read again; and what lies in it.
        self._good: dict[CheckpointId, dict[Shard, Described]] = {}
        self._to_thin: set[str] = set()  # jobs with a new complete checkpoint
        self._started = False  # at start, every job is looked at once
        self._troubles: dict[CheckpointId, str] = {}  # to log each once

    def wake(self) -> None:
        """Look again: something was committed."""
        self._woken.set()

    def look_at(self, job_id: str) -> None:
        """Look again at what need not be kept of a job: more may be given up, or is missing."""
        self._to_thin.add(job_id)
        self._woken.set()

    async def run(self) -> None:
        """Carry on forever. Raises Unavailable when the database does not answer."""
        while True:
            self._woken.clear()
            await self.carry_on()
            try:
                await asyncio.wait_for(self._woken.wait(), POLL_S)
            except TimeoutError:
                continue

    async def carry_on(self) -> None:
        """Do all that can be done now; what the object store keeps from being done stays."""
        for checkpoint_id in await self._catalog.unfinished():
            await self._attempt(checkpoint_id)
        if not self._started:
            self._to_thin |= set(await self._catalog.job_ids())
            self._started = True
        for job_id in sorted(self._to_thin):
            for deleted in await self.thin_out(job_id):
                await self._attempt(deleted)
            self._to_thin.discard(job_id)

    async def thin_out(self, job_id: str) -> list[CheckpointId]:
        """Delete what retention gives up, without its objects; return it.

        Also what was given up before, here or by another registry, and is not deleted yet.
        """
        known = tuple(await self._catalog.known(job_id))
        command = ThinOut(job_id=job_id, known=known, at_ms=self._clock.now_ms())
        done = await self._histories.handle(command)
        there = {(one.step, one.generation) for one in known}
        gone = [one for one in done.state.removed if (one.step, one.generation) in there]
        ids = [CheckpointId(job_id=job_id, step=r.step, generation=r.generation) for r in gone]
        for checkpoint_id, removal in zip(ids, gone, strict=True):
            await self.delete(checkpoint_id, removal.why)
        return ids

    async def delete(self, which: CheckpointId, why: str) -> None:
        """Make a checkpoint unusable; its objects go later."""
        self._good.pop(which, None)
        await self._checkpoints.handle(
            DeleteCheckpoint(
                job_id=which.job_id,
                step=which.step,
                generation=which.generation,
                why=why,
                at_ms=self._clock.now_ms(),
            )
        )

    async def _attempt(self, which: CheckpointId) -> None:
        stream = checkpoint_stream(which.job_id, which.generation, which.step)
        checkpoint = await self._checkpoints.state(stream)
        try:
            match checkpoint.phase:
                case Phase.STORED:
                    await self._finish(which, checkpoint)
                case Phase.DELETED:
                    await self._purge(which)
                case _:
                    pass
        except Unavailable as error:
            if self._troubles.get(which) != str(error):
                _log.warning("%s stays %s for now: %s", which, checkpoint.phase, error)
                self._troubles[which] = str(error)
        else:
            self._troubles.pop(which, None)

    async def _finish(self, which: CheckpointId, checkpoint: Checkpoint) -> None:
        faults = await self._read_back(which, checkpoint.sorted_shards)
        for shard, fault in faults:
            await self._refuse(which, shard, fault)
        if not faults:
            await self._complete(which, checkpoint)

    async def _read_back(
        self, which: CheckpointId, shards: Sequence[Shard]
    ) -> list[tuple[Shard, str]]:
        """Return what is bad, with the reason. Raises Unavailable; what was good is remembered."""
        good = self._good.setdefault(which, {})
        alike = {words: words for one in good.values() for words in one.optimizers}
        faults: list[tuple[Shard, str]] = []

        async def check(shard: Shard) -> None:
            async with self._reads:
                read = await read_back(self._objects, shard)
            if isinstance(read, str):
                faults.append((shard, read))
                return
            name = shard.uri.rpartition("/")[2]
            header = read.header(shard.uri)
            good[shard] = described(header, name, alike) if header is not None else Described()

        outage: Unavailable | None = None
        try:
            async with asyncio.TaskGroup() as reads:
                for shard in shards:
                    if shard not in good:
                        reads.create_task(check(shard))
        except* Unavailable as errors:
            outage = Unavailable(str(errors.exceptions[0]))
        if outage is not None:
            raise outage
        return sorted(faults, key=lambda fault: fault[0].rank)

    async def _complete(self, which: CheckpointId, checkpoint: Checkpoint) -> None:
        history = await self._histories.state(history_stream(which.job_id))
        key = manifest_key(which.job_id, which.step, which.generation)
        await self._describe_for_torch(which, checkpoint.sorted_shards)
        await self._objects.put(key, manifest_of(checkpoint, history.layout_of(which.generation)))
        done = await self._checkpoints.handle(
            CompleteCheckpoint(
                job_id=which.job_id,
                step=which.step,
                generation=which.generation,
                shards=checkpoint.sorted_shards,
                manifest_uri=key,
                at_ms=self._clock.now_ms(),
            )
        )
        if done.state.phase in (Phase.DELETED, Phase.PURGED):
            await self._unmake(which)  # deleted while it was read back: leave no manifest
        if done.events:
            _log.info("%s is complete", which)
        self._good.pop(which, None)
        self._to_thin.add(which.job_id)

    async def _describe_for_torch(self, which: CheckpointId, shards: Sequence[Shard]) -> None:
        """Make the folder a checkpoint that ``torch.distributed.checkpoint`` loads by itself.

        Not being one does not make it less of a checkpoint of ours.
        """
        good = self._good.get(which, {})
        try:
            files = torch_files(good[shard] for shard in shards if shard in good)
        except InvalidInput as error:
            _log.warning("%s is not readable by PyTorch alone: %s", which, error)
            return
        prefix = prefix_of(which.job_id, which.step, which.generation)
        for name, data in files.items():
            await self._objects.put(prefix + name, data)

    async def _refuse(self, which: CheckpointId, shard: Shard, fault: str) -> None:
        _log.warning("%s: %s is bad: %s", which, shard.uri, fault)
        await self._checkpoints.handle(
            RefuseShard(
                job_id=which.job_id,
                step=which.step,
                generation=which.generation,
                uri=shard.uri,
                checksum=shard.checksum,
                why=fault,
                at_ms=self._clock.now_ms(),
            )
        )

    async def _purge(self, which: CheckpointId) -> None:
        await self._unmake(which)
        prefix = prefix_of(which.job_id, which.step, which.generation)
        left = await self._objects.list(prefix)
        await asyncio.gather(*(self._remove(found.key) for found in left))
        await self._checkpoints.handle(
            NotePurge(
                job_id=which.job_id,
                step=which.step,
                generation=which.generation,
                at_ms=self._clock.now_ms(),
            )
        )

    async def _unmake(self, which: CheckpointId) -> None:
        """Remove what says that the objects are a checkpoint: to us, then to torch."""
        await self._objects.delete(manifest_key(which.job_id, which.step, which.generation))
        await self._objects.delete(
            prefix_of(which.job_id, which.step, which.generation) + METADATA_NAME
        )

    async def _remove(self, key: str) -> None:
        async with self._deletes:
            await self._objects.delete(key)
