"""What an agent does for its ranks' snapshots: copies to the peer, uploads to the object store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import xxhash

from everstep.core.errors import EverstepError, Unavailable
from everstep.service.commands import send_command
from everstep.sim.host import Durable, HostRun
from everstep.wire.v1.checkpoints_pb2 import ReportShards, Shard
from everstep.wire.v1.common_pb2 import CommandReply

if TYPE_CHECKING:
    from everstep.sim.agent import Agent

# As in everstep.agent: upload, replication.
SHARD_REPORT_S_MAX: Final = 5.0
UPLOAD_TRIES_MAX: Final = 10
PEER_AWAY_S_MAX: Final = 30.0


class Carrier:
    """One agent's transfers."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._host = agent.host
        self._progress = asyncio.Event()

    async def drained(self, job_id: str) -> None:
        """Return when nothing of a job is under way any more."""
        while any(one.job_id == job_id for one in self._host.uploads):
            self._progress.clear()
            await self._progress.wait()

    async def replicate(self, run: HostRun) -> None:
        """Keep the run's newest snapshot in the peer's memory too, while it has live ranks."""
        peer_id = run.placement.replica_host_id
        failing_since_s: float | None = None
        loop = asyncio.get_running_loop()
        while run.alive and peer_id:
            if run.replicated_step >= run.held_step:
                run.replicate.clear()
                await run.replicate.wait()
                continue
            step = run.held_step
            await asyncio.sleep(run.training.pace.replicate_s)
            if self._push(run, peer_id, step):
                run.replicated_step, failing_since_s = step, None
                run.replication_off = False
                continue
            if failing_since_s is None:
                failing_since_s = loop.time()
            elif loop.time() - failing_since_s > PEER_AWAY_S_MAX:
                run.replication_off = True
            await asyncio.sleep(0.5)

    def _push(self, run: HostRun, peer_id: str, step: int) -> bool:
        host, job_id = self._host, run.training.job_id
        peer = host.world.hosts[peer_id]
        if peer.agent is None or not host.world.links.reaches(host.host_id, peer_id):
            return False
        for rank in run.ranks:
            copy = host.memory.find(job_id, rank, step, own=True)
            if copy is None:
                return False
            generation = run.training.generation
            if not copy.sound:
                # It is no snapshot any more; the next one is the only thing that helps.
                host.memory.drop(job_id, copy)
            elif not peer.memory.write(job_id, copy, own=False, generation=generation):
                return False
        return True

    async def upload(self, durable: Durable) -> None:
        """Store a durable snapshot and report it; whatever fails, the slot is free again."""
        host = self._host
        shards = []
        try:
            for rank in durable.ranks:
                uri = (
                    f"jobs/{durable.job_id}/step-{durable.step:08d}/gen-{durable.generation}/"
                    f"rank-{rank:05d}.shard"
                )
                data = f"{durable.state} {rank}".encode()
                pace = host.world.pace.upload_s / len(durable.ranks)
                await asyncio.sleep(pace * (0.5 + host.random.random()))
                if not await self._put(uri, data):
                    host.uploads.remove(durable)
                    self._progress.set()
                    return
                shards.append(
                    Shard(
                        rank=rank,
                        uri=uri,
                        bytes=len(data),
                        checksum=xxhash.xxh3_128_hexdigest(data),
                    )
                )
        finally:
            if self._agent.process.alive:
                self._free(durable)
        if durable in host.uploads:  # else its generation is over
            await self._report_shards(durable, shards)
        if durable in host.uploads:
            host.uploads.remove(durable)
        self._progress.set()

    async def _put(self, uri: str, data: bytes) -> bool:
        pause_s = 0.5
        for _ in range(UPLOAD_TRIES_MAX):
            try:
                await self._host.world.objects.put(uri, data)
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, 20.0)
            else:
                return True
        return False

    def _free(self, durable: Durable) -> None:
        for run in self._host.runs.values():
            if run.durable is durable:
                run.durable = None

    async def _report_shards(self, durable: Durable, shards: list[Shard]) -> None:
        command = ReportShards(
            job_id=durable.job_id,
            step=durable.step,
            generation=durable.generation,
            host_id=self._host.host_id,
            world_size=durable.world_size,
            shards=shards,
            data_state="{}",
            at_ms=self._host.now_ms(),
        )
        while True:
            try:
                await send_command(
                    self._agent.endpoint,
                    "checkpoint_registry",
                    command,
                    CommandReply,
                    timeout_s=SHARD_REPORT_S_MAX,
                )
            except EverstepError as error:
                if not error.retryable:
                    return
                await asyncio.sleep(1.0)
            else:
                return
