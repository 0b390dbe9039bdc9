"""Carries durable snapshots to the object store, in the background.

A host reports a step once, when the shards of all its ranks are stored. Whatever fails here, the
rank's durable slot is freed at the end: a checkpoint that cannot be stored is one checkpoint less
and never a stop of the training.

Each step's progress is a file until the registry has answered, so that an agent that comes back
neither uploads twice nor forgets to report. How a file gets there is ``transfer``'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final, TypeVar

from everstep.agent.examine import Snapshot, examine
from everstep.agent.runs import RankRun, Spawn
from everstep.agent.shards import ShardBatch, ShardFiles, StoredShard, object_key
from everstep.agent.store import HostMemory
from everstep.agent.transfer import Transfers, Upload
from everstep.core.errors import CorruptData, EverstepError, NotFoundError
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.memory import layout
from everstep.service.commands import send_command
from everstep.wire.codec import to_wire
from everstep.wire.v1.checkpoints_pb2 import ReportShards
from everstep.wire.v1.common_pb2 import CommandReply

log = logging.getLogger(__name__)

T = TypeVar("T")
UPLOADS_MAX: Final = 2  # at a time: training's own traffic comes first
REPORT_S_MAX: Final = 5.0  # the registry reads every object back before it answers
REPORT_RETRY_S: Final = 1.0


class Uploads:
    """The uploads of one host.

    Args:
        host_id: who reports.
        memory: where durable slots lie.
        transfers: None when the host has no object store: durable snapshots are then dropped.
        files: progress on disk.
        clock: for ``at_ms``.
        executor: for reading and checksums.
        spawn: starts a task.
        limit_of: how many bytes a second a job allows this host; 0: no limit.
    """

    def __init__(
        self,
        host_id: str,
        memory: HostMemory,
        transfers: Transfers | None,
        files: ShardFiles,
        clock: Clock,
        executor: Executor,
        spawn: Spawn,
        limit_of: Callable[[str], int],
    ) -> None:
        self._host_id = host_id
        self._memory = memory
        self._transfers = transfers
        self._files = files
        self._clock = clock
        self._executor = executor
        self._spawn = spawn
        self._limit_of = limit_of
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
        """Upload a rank's durable snapshot, unless that is done.

        Args:
            job_id: whose.
            generation: of the rank.
            rank: its control word says when the slot is free again.
            local: all ranks of this host, whose shards of the step are reported together.
        """
        if not rank.control.durable_busy:
            return  # told again on a new connection: stored since, and the slot may be rewritten
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
                await self._store(path, (job_id, generation, rank.rank), local)
        except (EverstepError, OSError) as error:
            log.warning(
                "a checkpoint of job %s lacks rank %d, the next one tries again: %s",
                job_id,
                rank.rank,
                error,
            )
        finally:
            if not self._closing:  # else the next agent finds the slot still to be stored
                rank.control.durable_busy = False

    async def _store(self, path: Path, whose: tuple[str, int, int], local: frozenset[int]) -> None:
        if self._transfers is None:
            raise NotFoundError("this host has no object store")
        job_id, generation, rank = whose
        snapshot = await self._call(lambda: examine(path))
        if (snapshot.job_id, snapshot.rank) != (job_id, rank):
            raise CorruptData(
                f"{path}: expected rank {rank} of job {job_id}, got rank {snapshot.rank} of job "
                f"{snapshot.job_id}"
            )
        uri = object_key(job_id, snapshot.step, generation, rank)
        shard = StoredShard(rank=rank, uri=uri, bytes=snapshot.bytes, checksum=snapshot.checksum)
        batch = self._batch(snapshot, generation, local)
        if shard not in batch.shards:  # else an earlier agent of this host has stored it
            await self._put(self._transfers, shard, path, job_id)
            batch = self._batch(snapshot, generation, local).with_shard(shard)
            self._batches[batch.key] = batch
            self._files.save(batch)
            if batch.complete:
                self._complete.put_nowait(batch)
        if batch.complete:
            self._drop_older(batch)

    async def _put(self, transfers: Transfers, shard: StoredShard, path: Path, job_id: str) -> None:
        upload = Upload(
            key=shard.uri,
            path=str(path),
            size_bytes=shard.bytes,
            checksum=shard.checksum,
            bytes_per_s_max=self._limit_of(job_id),
        )
        try:
            await transfers.store(upload)
        except (EverstepError, OSError):
            await transfers.drop(shard.uri)
            raise
        except asyncio.CancelledError:
            if not self._closing:  # its generation is over
                self._spawn(transfers.drop(shard.uri))
            raise

    def _batch(self, snapshot: Snapshot, generation: int, local: frozenset[int]) -> ShardBatch:
        """Return what is stored of a step on this host."""
        key = (snapshot.job_id, generation, snapshot.step)
        return self._batches.get(key) or ShardBatch(
            job_id=snapshot.job_id,
            generation=generation,
            step=snapshot.step,
            world_size=snapshot.world_size,
            data_state=snapshot.data_state,
            expected=tuple(sorted(local)),
        )

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
