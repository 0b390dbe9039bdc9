"""Agents of several hosts on one machine, with a control plane of a few lines.

Agents run in the test's own event loop on the memory bus; fork servers and ranks are processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import until

from everstep.agent.host import HostAgent, open_agent
from everstep.agent.processes import is_running
from everstep.agent.settings import AgentSettings
from everstep.bus.memory import MemoryBus
from everstep.core.ports import Bus, Message
from everstep.core.system import RandomIds, SystemClock
from everstep.objectstore.memory import MemoryObjects
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import (
    Heartbeat,
    ProbeHost,
    ProbeHostReply,
    RankReport,
    StartRanks,
    StepMetrics,
    StopRanks,
    StopRanksReply,
)
from everstep.wire.v1.checkpoints_pb2 import Holder, ReportShards, RestoreSources, Shard
from everstep.wire.v1.common_pb2 import (
    CommandReply,
    HeldSnapshots,
    HostPlacement,
    Layout,
    Outcome,
    Placement,
)
from everstep.wire.v1.hosts_pb2 import HostAddress, JoinHost, ListHosts, ListHostsReply

FAKE_RANK = ("--preload", "", "--run", "tests.integration.agent.fake_rank:run")
JOB = "job-1"
ROOT = Path(__file__).resolve().parents[3]


@dataclass(slots=True)
class Plane:
    """What the control plane heard."""

    bus: Bus
    objects: MemoryObjects
    joins: list[JoinHost] = field(default_factory=list)
    reports: list[RankReport] = field(default_factory=list)
    metrics: list[StepMetrics] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    shards: list[ReportShards] = field(default_factory=list)

    async def listen(self) -> None:
        """Play inventory, registry and monitor."""
        accepted = CommandReply(outcome=Outcome(accepted=True)).SerializeToString()

        async def join(message: Message) -> bytes:
            self.joins.append(JoinHost.FromString(message.data))
            return accepted

        async def list_hosts(message: Message) -> bytes:
            asked = ListHosts.FromString(message.data).hosts
            newest = {one.host_id: one for one in self.joins if one.host_id in asked}
            addresses = [
                HostAddress(host_id=one.host_id, address=one.address, peer_port=one.peer_port)
                for one in newest.values()
            ]
            reply = ListHostsReply(outcome=Outcome(accepted=True), addresses=addresses)
            return reply.SerializeToString()

        async def shards(message: Message) -> bytes:
            self.shards.append(ReportShards.FromString(message.data))
            return accepted

        async def leave(message: Message) -> bytes:
            return accepted

        async def report(message: Message) -> None:
            self.reports.append(RankReport.FromString(message.data))

        async def metrics(message: Message) -> None:
            self.metrics.append(StepMetrics.FromString(message.data))

        async def heartbeat(message: Message) -> None:
            self.heartbeats.append(Heartbeat.FromString(message.data))

        await self.bus.serve("everstep.v1.cmd.host_inventory.join_host", join)
        await self.bus.serve("everstep.v1.cmd.host_inventory.leave_host", leave)
        await self.bus.serve("everstep.v1.cmd.host_inventory.list_hosts", list_hosts)
        await self.bus.serve("everstep.v1.cmd.checkpoint_registry.report_shards", shards)
        await self.bus.subscribe("everstep.v1.host.*.report", report)
        await self.bus.subscribe("everstep.v1.host.*.metrics", metrics)
        await self.bus.subscribe("everstep.v1.host.*.heartbeat", heartbeat)

    def reported(self, kind: int, generation: int = -1) -> list[RankReport]:
        """Reports of one kind, of one generation or any."""
        return [
            one for one in self.reports if one.kind == kind and generation in {-1, one.generation}
        ]

    def newest_step(self, generation: int) -> int:
        """The newest step that anybody told of a generation."""
        steps = [
            rank.step
            for message in self.metrics
            if message.generation == generation
            for rank in message.ranks
        ]
        return max(steps, default=-1)

    async def step_reached(self, generation: int, step: int) -> None:
        """Wait until some rank of a generation has come to ``step``: fake ranks step alone."""
        await until(
            lambda: self.newest_step(generation) >= step, what=f"step {step} of {generation}"
        )

    async def step_reached_by_all(self, generation: int, step: int, ranks: int) -> None:
        """Wait until each rank of a generation has come to ``step``."""

        def arrived() -> bool:
            there = {
                rank.rank
                for message in self.metrics
                if message.generation == generation
                for rank in message.ranks
                if rank.step >= step
            }
            return len(there) == ranks

        await until(arrived, what=f"step {step} of {generation} on {ranks} ranks")

    async def ask(self, host_id: str, command: Any, reply: Any, timeout_s: float = 20.0) -> Any:
        """Send a host command."""
        name = type(command).DESCRIPTOR.name.removesuffix("Ranks").removesuffix("Host").lower()
        subject = host_subject(host_id, f"cmd.{name}")
        return await request(self.bus, subject, command, reply, timeout_s=timeout_s)

    async def stop(self, host_id: str, generation: int, **flags: bool) -> StopRanksReply:
        """Fence a host."""
        command = StopRanks(job_id=JOB, generation=generation, **flags)
        reply: StopRanksReply = await self.ask(host_id, command, StopRanksReply)
        return reply

    async def probe(self, host_id: str) -> ProbeHostReply:
        """Probe a host."""
        reply: ProbeHostReply = await self.ask(host_id, ProbeHost(nonce="n"), ProbeHostReply)
        return reply


@dataclass(slots=True)
class Host:
    """One host's directories, and its agent while there is one."""

    settings: AgentSettings
    agent: HostAgent | None = None

    @property
    def host_id(self) -> str:
        """Its name."""
        return self.settings.host_id

    @asynccontextmanager
    async def up(
        self, plane: Plane, *, fork_arguments: Sequence[str] = FAKE_RANK
    ) -> AsyncIterator[HostAgent]:
        """Run its agent, warm."""
        async with open_agent(
            self.settings,
            plane.bus,
            plane.objects,
            clock=SystemClock(),
            ids=RandomIds(),
            fork_arguments=fork_arguments,
        ) as agent:
            self.agent = agent
            await until(lambda: agent.forks.warm, what="fork server warm")
            subject = host_subject(self.host_id, "cmd.probe")
            if isinstance(plane.bus, MemoryBus):
                await until(lambda: any(one.subject == subject for one in plane.bus.listeners))
            yield agent
        self.agent = None

    @property
    def fork_server_pid(self) -> int:
        """From its pid file; 0 when there is none."""
        path = self.settings.run_dir / "fork_server.pid"
        return int(path.read_text() or 0) if path.exists() else 0

    async def destroy(self) -> None:
        """End its fork server and ranks, and free its memory."""
        pid = self.fork_server_pid
        if pid and is_running(pid):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # in case a test left it standing
            await until(lambda: not is_running(pid), what="fork server ended")
        shutil.rmtree(self.settings.memory_dir, ignore_errors=True)


def make_host(directory: Path, host_id: str, chips: int = 2) -> Host:
    """A host with directories of its own; its memory is on tmpfs."""
    memory = Path("/dev/shm") / f"everstep-test-{os.getpid()}-{directory.name}" / host_id
    return Host(
        AgentSettings(
            host_id=host_id,
            chips=chips,
            run_dir=directory / host_id,
            memory_dir=memory,
        )
    )


@asynccontextmanager
async def hosts_on(directory: Path, *host_ids: str, chips: int = 2) -> AsyncIterator[list[Host]]:
    """Hosts that leave nothing behind."""
    hosts = [make_host(directory, host_id, chips) for host_id in host_ids]
    try:
        yield hosts
    finally:
        for host in hosts:
            await host.destroy()
        with contextlib.suppress(OSError):
            hosts[0].settings.memory_dir.parent.rmdir()


@asynccontextmanager
async def new_plane() -> AsyncIterator[Plane]:
    """A control plane on a memory bus."""
    plane = Plane(MemoryBus(), MemoryObjects())
    await plane.listen()
    yield plane
    for listener in list(plane.bus.listeners):
        await listener.close()


def spec_json(steps: int = 1_000_000, **args: Any) -> str:
    """A job spec; ``args`` steer the fake rank."""
    return json.dumps(
        {
            "name": "test",
            "entry": "fake.py",
            "args": args,
            "layout": {"dp_shard": 1},
            "steps": steps,
            "cwd": str(ROOT),
        }
    )


def placed(hosts: Sequence[Host], ranks_each: int, *, replicate: bool = True) -> Placement:
    """Ranks in order over hosts; each host's copies go to the next."""
    parts = []
    for index, host in enumerate(hosts):
        assert host.agent is not None
        peer = hosts[(index + 1) % len(hosts)] if replicate and len(hosts) > 1 else None
        parts.append(
            HostPlacement(
                host_id=host.host_id,
                address=host.agent.facts.address,
                peer_port=host.agent.facts.peer_port,
                ranks=range(index * ranks_each, (index + 1) * ranks_each),
                replica_host_id=peer.host_id if peer else "",
            )
        )
    return Placement(
        layout=Layout(pp=1, dp_replicate=1, dp_shard=len(hosts) * ranks_each, tp=1), hosts=parts
    )


async def start_all(
    plane: Plane,
    placement: Placement,
    generation: int,
    spec: str,
    *,
    restore_step: int = -1,
    restores: Sequence[RankRestore] = (),
) -> list[CommandReply]:
    """Start every host of a placement; returns the answers."""
    return await asyncio.gather(
        *(
            plane.ask(
                host.host_id,
                start_command(
                    placement,
                    host.host_id,
                    generation=generation,
                    spec_json=spec,
                    rendezvous_address="127.0.0.1",
                    rendezvous_port=1,
                    restore_step=restore_step,
                    sources=sources_of([one for one in restores if one.rank in host.ranks]),
                ),
                CommandReply,
            )
            for host in placement.hosts
        )
    )


def start_command(
    placement: Placement, host_id: str, *, job_id: str = JOB, **fields: Any
) -> StartRanks:
    """One host's part of a start."""
    hosts = {one.host_id: one for one in placement.hosts}
    mine = hosts[host_id]
    return StartRanks(
        job_id=job_id,
        layout=placement.layout,
        host_index=list(hosts).index(host_id),
        host_count=len(hosts),
        host=mine,
        peer=hosts.get(mine.replica_host_id),
        replicas=[
            rank for one in placement.hosts if one.replica_host_id == host_id for rank in one.ranks
        ],
        **fields,
    )


@dataclass(frozen=True, slots=True)
class RankRestore:
    """Where one rank loads from: memory of hosts before objects."""

    rank: int
    sources: Sequence[Holder | Shard]


def sources_of(restores: Sequence[RankRestore]) -> RestoreSources:
    """The sources of ranks as the wire has them; holders keep their order."""
    found = RestoreSources()
    for restore in restores:
        for source in restore.sources:
            if isinstance(source, Shard):
                found.shards.add(
                    rank=restore.rank,
                    uri=source.uri,
                    checksum=source.checksum,
                    bytes=source.bytes,
                )
                continue
            holder = found.holders.add()
            holder.CopyFrom(source)
            named = holder.replicas if holder.peer_port else holder.own
            named.append(restore.rank)
    return found


def own(host_id: str) -> Holder:
    """The rank's own memory on a host."""
    return Holder(host_id=host_id)


def peer(host: Host) -> Holder:
    """The copy that a host keeps."""
    assert host.agent is not None
    facts = host.agent.facts
    return Holder(host_id=host.host_id, address=facts.address, peer_port=facts.peer_port)


def held_ranks(held: Iterable[HeldSnapshots]) -> list[tuple[int, int, bool]]:
    """What a host holds as (rank, step, own)."""
    return [(rank, one.step, one.own) for one in held for rank in one.ranks]
