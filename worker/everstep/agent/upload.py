"""Carries durable snapshots to the object store, in the background.

A host reports a step once, when the shards of all its ranks are stored. Whatever fails here, the
rank's durable slot is freed at the end: a checkpoint that cannot be stored is one checkpoint less
and never a stop of the training.

Each step's progress is a file until the registry has answered, so that an agent that comes back
neither uploads twice nor forgets to report.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from everstep.agent.runs import RankRun, Spawn
from everstep.agent.shards import ShardBatch, ShardFiles, StoredShard, object_key
from everstep.agent.store import HostMemory
from everstep.core.errors import EverstepError, NotFoundError
from everstep.core.ports import Bus, ObjectStore
from everstep.core.system import Clock
from everstep.memory import layout
from everstep.memory.reader import SlotReader
from everstep.service.commands import send_command
from everstep.wire.codec import to_wire
from everstep.wire.v1.checkpoints_pb2 import ReportShards
from everstep.wire.v1.common_pb2 import CommandReply

log = logging.getLogger(__name__)

T = TypeVar("T")
UPLOADS_MAX: Final = 2  # at a time: training's own traffic comes first
# 0.5 + 1 + 2 + 4 + 8 + 16 + 3 x 20 s: about a minute and a half, then the next checkpoint's turn.
TRIES_MAX: Final = 10
RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 20.0
REPORT_S_MAX: Final = 5.0  # the registry reads every object back before it answers
REPORT_RETRY_S: Final = 1.0


class Uploads:
    """The uploads of one host.

    Args:
        host_id: who reports.
        memory: where durable slots lie.
        objects: None when the host has no object store: durable snapshots are then dropped.
        files: progress on disk.
        clock: for ``at_ms``.
        executor: for reading and checksums.
        spawn: starts a task.
    """

    def __init__(
        self,
        host_id: str,
        memory: HostMemory,
        objects: ObjectStore | None,
        files: ShardFiles,
        clock: Clock,
        executor: Executor,
        spawn: Spawn,
    ) -> None:
        self._host_id = host_id
        self._memory = memory
        self._objects = objects
        self._files = files
        self._clock = clock
        self._executor = executor
        self._spawn = spawn
        self._slots = asyncio.Semaphore(UPLOADS_MAX)
        self._batches = {batch.key: batch for batch in files.load()}
        self._tasks: dict[tuple[str, int, int], asyncio.Task[None]] = {}
        self._closing = False
        self._progress = asyncio.Event()
        self._complete: asyncio.Queue[ShardBatch] = asyncio.Queue()
        for batch in self._batches.values():
            if batch.complete:
                self._complete.put_nowait(batch)

    def add(self, job_id: str, generation: int, rank: RankRun, local: frozenset[int]) -> None:
        """Upload a rank's durable snapshot.

        Args:
            job_id: whose.
            generation: of the rank.
            rank: its control word says when the slot is free again.
            local: all ranks of this host, whose shards of the step are reported together.
        """
        key = (job_id, generation, rank.rank)
        running = self._tasks.get(key)
        if running is None or running.done():
            task = self._spawn(self._upload(job_id, generation, rank, local))
            task.add_done_callback(lambda _: self._progress.set())
            self._tasks[key] = task

    def end(self, job_id: str, generation: int) -> None:
        """Stop uploading for older generations: the registry would refuse them."""
        for key in [one for one in self._tasks if one[0] == job_id and one[1] < generation]:
            self._tasks.pop(key).cancel()
        for batch in list(self._batches.values()):
            if batch.job_id == job_id and batch.generation < generation and not batch.complete:
                self._drop(batch, "its generation is over")

    async def drained(self, job_id: str, timeout_s: float) -> bool:
        """Wait until nothing of a job is under way or unreported; False when it takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._is_busy(job_id):
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Stop all; a new agent takes up what is not through."""
        self._closing = True
        for task in self._tasks.values():
            task.cancel()

    async def run(self, bus: Bus) -> None:
        """Report complete steps for ever, in the order in which they became complete."""
        while True:
            batch = await self._complete.get()
            await self._report(bus, batch)
            self._batches.pop(batch.key, None)
            self._files.delete(batch)
            self._progress.set()

    def _is_busy(self, job_id: str) -> bool:
        running = any(key[0] == job_id and not task.done() for key, task in self._tasks.items())
        return running or any(
            batch.job_id == job_id and batch.complete for batch in self._batches.values()
        )

    async def _upload(
        self, job_id: str, generation: int, rank: RankRun, local: frozenset[int]
    ) -> None:
        path = layout.durable_path(self._memory.directory(job_id, rank.rank, own=True))
        try:
            async with self._slots:
                await self._store(path, generation, rank.rank, local)
        except (EverstepError, OSError) as error:
            log.warning(
                "durable snapshot of rank %d of job %s dropped: %s", rank.rank, job_id, error
            )
        finally:
            if not self._closing:  # else the next agent finds the slot still to be stored
                rank.control.durable_busy = False

    async def _store(self, path: Path, generation: int, rank: int, local: frozenset[int]) -> None:
        if self._objects is None:
            raise NotFoundError("this host has no object store")
        snapshot = await self._call(lambda: _examine(path))
        uri = object_key(snapshot.job_id, snapshot.step, generation, rank)
        await self._put(uri, path, snapshot.bytes)
        key = (snapshot.job_id, generation, snapshot.step)
        batch = self._batches.get(key) or ShardBatch(
            job_id=snapshot.job_id,
            generation=generation,
            step=snapshot.step,
            world_size=snapshot.world_size,
            data_state=snapshot.data_state,
            expected=tuple(sorted(local)),
        )
        shard = StoredShard(rank=rank, uri=uri, bytes=snapshot.bytes, checksum=snapshot.checksum)
        batch = batch.with_shard(shard)
        self._batches[key] = batch
        self._files.save(batch)
        if batch.complete:
            self._complete.put_nowait(batch)
            self._drop_older(batch)

    async def _put(self, uri: str, path: Path, size_bytes: int) -> None:
        assert self._objects is not None
        pause_s = RETRY_S_MIN
        for attempt in range(1, TRIES_MAX + 1):
            try:
                await self._objects.put_file(uri, str(path), size_bytes=size_bytes)
            except EverstepError as error:
                if attempt == TRIES_MAX or not error.retryable:
                    raise
                log.warning("upload of %s, try %d of %d: %s", uri, attempt, TRIES_MAX, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            else:
                return

    async def _report(self, bus: Bus, batch: ShardBatch) -> None:
        command = to_wire(batch.report(self._host_id, self._clock.now_ms()), ReportShards())
        while True:
            try:
                reply = await send_command(
                    bus, "checkpoint_registry", command, CommandReply, timeout_s=REPORT_S_MAX
                )
            except EverstepError as error:
                if not error.retryable:
                    log.warning("shards of step %d cannot be reported: %s", batch.step, error)
                    return
                log.info("shards of step %d wait for the registry: %s", batch.step, error)
                await asyncio.sleep(REPORT_RETRY_S)
                continue
            if not reply.outcome.accepted:
                log.warning(
                    "shards of step %d of generation %d refused: %s: %s",
                    batch.step,
                    batch.generation,
                    reply.outcome.why,
                    reply.outcome.detail,
                )
            return

    def _drop_older(self, newer: ShardBatch) -> None:
        """A rank's shard that never came makes an older step worthless once a newer is whole."""
        for batch in list(self._batches.values()):
            older = batch.job_id == newer.job_id and batch.step < newer.step
            if older and not batch.complete:
                self._drop(batch, "a newer step is complete")

    def _drop(self, batch: ShardBatch, why: str) -> None:
        log.info("shards of step %d of job %s dropped: %s", batch.step, batch.job_id, why)
        self._batches.pop(batch.key, None)
        self._files.delete(batch)

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a durable slot holds, checked."""

    job_id: str
    step: int
    world_size: int
    data_state: str
    bytes: int
    checksum: str


def _examine(path: Path) -> _Snapshot:
    """Check a slot before it is stored for good, and name what will be stored.

    Raises:
        CorruptData: it went bad in memory.
        NotFoundError: there is no complete snapshot.
    """
    with SlotReader(path) as reader:
        header = reader.verify()
        return _Snapshot(
            job_id=header.job_id,
            step=header.step,
            world_size=header.world_size,
            data_state=json.dumps(header.data_state),
            bytes=reader.preamble.slot_bytes,
            checksum=reader.checksum(),
        )
