"""Two hosts with a rank each, as agents of the tests, and how far their checkpoints are."""

from __future__ import annotations

import json
from dataclasses import dataclass

import xxhash
from tests.integration.service_process import ServiceProcess
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.objectstore.s3 import S3Store
from everstep.service.commands import send_command
from everstep.wire.v1 import checkpoints_pb2
from everstep.wire.v1.common_pb2 import CommandReply, HeldSnapshots, Outcome

REPLY_S = 20.0
SHARD_BYTES = 5_000_000  # more than one chunk


@dataclass
class Agents:
    """Two hosts, a rank each, that upload and report."""

    bus: NatsBus
    objects: S3Store
    job_id: str
    shard_bytes: int = SHARD_BYTES

    def key(self, step: int, rank: int, generation: int = 1) -> str:
        """Return the key of a shard."""
        prefix = f"jobs/{self.job_id}/step-{step:08d}/gen-{generation}"
        return f"{prefix}/rank-{rank:05d}.shard"

    def data(self, step: int, rank: int) -> bytes:
        """Return a rank's state."""
        return bytes([step % 251, rank]) * (self.shard_bytes // 2)

    async def upload(self, step: int, *ranks: int, generation: int = 1) -> None:
        """Store what the ranks have."""
        for rank in ranks:
            await self.objects.put(self.key(step, rank, generation), self.data(step, rank))

    async def report(self, step: int, rank: int, generation: int = 1) -> Outcome:
        """Say that a rank's shard is stored."""
        data = self.data(step, rank)
        shard = checkpoints_pb2.Shard(
            rank=rank,
            uri=self.key(step, rank, generation),
            bytes=len(data),
            checksum=xxhash.xxh3_128_hexdigest(data),
        )
        command = checkpoints_pb2.ReportShards(
            job_id=self.job_id,
            step=step,
            generation=generation,
            host_id=f"h{rank}",
            world_size=2,
            shards=[shard],
            data_state=json.dumps({"position": step}),
            at_ms=step,
        )
        reply = await send_command(
            self.bus, "checkpoint_registry", command, CommandReply, timeout_s=REPLY_S
        )
        return reply.outcome

    async def save(self, step: int, generation: int = 1) -> None:
        """Upload and report all of a step."""
        await self.upload(step, 0, 1, generation=generation)
        for rank in (0, 1):
            outcome = await self.report(step, rank, generation)
            assert outcome.accepted, outcome

    async def plan(self, generation: int, *held: tuple[int, int, bool], from_step: int = -1):
        """Ask for a plan; ``held`` are (rank, step, own), on host ``h<rank>`` or its peer."""
        holdings = [
            checkpoints_pb2.HostHoldings(
                host_id=f"h{rank if own else 1 - rank}",
                address="net",
                peer_port=7000,
                held=[HeldSnapshots(step=step, own=own, generation=generation - 1, ranks=[rank])],
            )
            for rank, step, own in held
        ]
        command = checkpoints_pb2.PlanRestore(
            job_id=self.job_id,
            generation=generation,
            world_size=2,
            holdings=holdings,
            from_step=from_step,
            at_ms=1,
        )
        return await send_command(
            self.bus,
            "checkpoint_registry",
            command,
            checkpoints_pb2.PlanRestoreReply,
            timeout_s=REPLY_S,
        )


async def state_of(registry: ServiceProcess, job_id: str, step: int) -> str:
    """Return how far a checkpoint is; "" for one that nobody has heard of."""
    found = await registry.get("/v1/checkpoints", job_id=job_id, deleted=True)
    return next((c["state"] for c in found["checkpoints"] if c["step"] == step), "")


async def reaches(registry: ServiceProcess, job_id: str, step: int, state: str) -> None:
    """Wait until a checkpoint is that far."""

    async def is_there() -> bool:
        return await state_of(registry, job_id, step) == state

    await until(is_there, what=f"step {step} is {state}")
