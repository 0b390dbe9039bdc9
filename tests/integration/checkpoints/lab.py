"""One job on one host whose agent, registry and object store are processes that may be killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from tests import waiting
from tests.integration.agent.harness import hosts_on, start_command
from tests.integration.agent.test_lifecycle import digest_after
from tests.integration.checkpoints.gate import GATE, Gate, open_gate
from tests.integration.checkpoints.zygote import Zygote, kill, open_zygote
from tests.integration.service_process import FakeService

from everstep.bus.nats import NatsBus
from everstep.cli.checkpoint_files import verify
from everstep.core.errors import EverstepError, Unavailable
from everstep.core.system import RandomIds
from everstep.local.server_command import free_ports
from everstep.local.servers import RunningServers
from everstep.objectstore.s3 import S3Store
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import (
    RANK_READY,
    ProbeHost,
    ProbeHostReply,
    RankReport,
    SaveRanks,
    StartRanks,
    StepMetrics,
    StopRanks,
    StopRanksReply,
)
from everstep.wire.v1.common_pb2 import CommandReply, HostPlacement, Layout, Outcome, Placement
from everstep.wire.v1.hosts_pb2 import JoinHost

HOST = "h1"
KEEP_LAST = 2
PART_BYTES = 5 << 20  # the least that S3 takes
SWEEP = {"EVERSTEP_SWEEP_EVERY_S": "0.2", "EVERSTEP_SWEEP_GRACE_S": "1.0"}


@dataclass
class Party:
    """A process that may be killed and started again."""

    name: str
    zygote: Zygote
    environment: Mapping[str, str]
    log: Path
    pid: int = 0

    async def start(self) -> None:
        """Start it."""
        self.pid = await self.zygote.start(self.name, self.environment, self.log)

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        await kill(self.pid)


@dataclass
class Lab:
    """Everything, and the test as its controller and inventory."""

    job_id: str
    bus: NatsBus
    objects: S3Store
    servers: RunningServers
    gate: Gate
    registry: Party
    agent: Party
    http: httpx.AsyncClient
    controller: FakeService
    reports: list[RankReport] = field(default_factory=list)
    told_step: int = 0  # the newest step of the rank
    joins: list[JoinHost] = field(default_factory=list)

    async def listen(self) -> None:
        """Play inventory and monitor."""
        accepted = CommandReply(outcome=Outcome(accepted=True)).SerializeToString()

        async def join(message) -> bytes:
            self.joins.append(JoinHost.FromString(message.data))
            return accepted

        async def report(message) -> None:
            self.reports.append(RankReport.FromString(message.data))

        await self.bus.serve("everstep.v1.cmd.host_inventory.join_host", join)

        async def metrics(message) -> None:
            for rank in StepMetrics.FromString(message.data).ranks:
                self.told_step = max(self.told_step, rank.step)

        await self.bus.subscribe("everstep.v1.host.*.report", report)
        await self.bus.subscribe("everstep.v1.host.*.metrics", metrics)

    async def ask(self, command, reply):
        """Send a host command."""
        name = type(command).DESCRIPTOR.name.removesuffix("Ranks").removesuffix("Host").lower()
        subject = host_subject(HOST, f"cmd.{name}")
        return await request(self.bus, subject, command, reply, timeout_s=20)

    async def get(self, path: str, **params):
        """Ask the registry, once it is there."""

        async def ask():
            try:
                answer = await self.http.get(path, params=params)
            except httpx.HTTPError:
                return None
            return answer.json() if answer.is_success else None

        return await until(ask, what=f"the registry answers {path}; see {self.registry.log}")

    async def agent_is_up(self) -> None:
        """Wait until the agent answers, with its fork server warm."""

        async def warm() -> bool:
            try:
                return (await self.ask(ProbeHost(nonce="n"), ProbeHostReply)).fork_server_warm
            except EverstepError:
                return False

        await until(warm, what=f"the agent answers; see {self.agent.log}")

    async def begin(self, generation: int, spec: dict, restores=None) -> None:
        """Start a generation on the host: one rank."""
        at = {"job_id": self.job_id, "at_ms": 1}
        if generation == 1:
            await self.controller.publish("job_submitted", spec_json=json.dumps(spec), **at)
        await self.controller.publish(
            "generation_begun", generation=generation, cause="launch", from_step=-1, **at
        )
        command = start_command(
            self._placement(),
            HOST,
            job_id=self.job_id,
            generation=generation,
            spec_json=json.dumps(spec),
            rendezvous_address="127.0.0.1",
            rendezvous_port=1,
            **(restores or {"restore_step": -1}),
        )
        assert isinstance(command, StartRanks)
        reply = await self.ask(command, CommandReply)
        assert reply.outcome.accepted, reply.outcome
        await until(lambda: self.ready(generation), what=f"generation {generation} is ready")

    def ready(self, generation: int) -> list[RankReport]:
        """Return what the rank said when it was ready."""
        told = (self.job_id, RANK_READY, generation)
        return [one for one in self.reports if (one.job_id, one.kind, one.generation) == told]

    async def stop(self, generation: int) -> None:
        """Fence the host."""
        await self.ask(StopRanks(job_id=self.job_id, generation=generation), StopRanksReply)

    async def save(self, generation: int = 1) -> None:
        """Ask for a checkpoint."""
        command = SaveRanks(job_id=self.job_id, generation=generation)
        reply = await self.ask(command, CommandReply)
        assert reply.outcome.accepted, reply.outcome

    async def steps_on(self) -> None:
        """Wait until the agent tells of a step that is new."""
        before = self.told_step
        await until(lambda: self.told_step > before, what="the rank goes on, and is heard")

    async def complete(self) -> list[int]:
        """Return the steps that the registry calls complete, oldest first."""
        found = (await self.get("/v1/checkpoints", job_id=self.job_id))["checkpoints"]
        return sorted(one["step"] for one in found if one["complete"])

    async def newer_than(self, step: int) -> int:
        """Wait for a complete checkpoint of a later step; returns the newest."""

        async def newest() -> int:
            steps = await self.complete()
            return steps[-1] if steps and steps[-1] > step else 0

        found: int = await until(newest, what=f"a checkpoint after step {step}")
        return found

    async def check(self) -> None:
        """Read every complete checkpoint, and see that nothing else says that it is one."""

        async def settled() -> list[int]:
            steps = await self.complete()
            return steps if len(steps) <= KEEP_LAST else []

        steps = await until(settled, what="retention has given up what is too old")
        for step in steps:
            await until(partial(self._reads_back, step), what=f"step {step} read back")
        keys = [info.key for info in await self.objects.list(f"jobs/{self.job_id}/")]
        manifests = [_step_of(key) for key in keys if key.endswith("/manifest.json")]
        assert set(steps) <= set(manifests), (steps, manifests)
        for step in set(manifests) - set(steps):
            state = (await self.get(f"/v1/checkpoints/{self.job_id}/{step}"))["state"]
            assert state in {"deleted", "purged"}, (step, state)  # it still reads well, and goes

    async def _reads_back(self, step: int) -> bool:
        """Read a checkpoint; a server that has just come up may not answer for everything yet."""
        key = f"jobs/{self.job_id}/step-{step:08d}/gen-1/manifest.json"
        try:
            manifest = json.loads(await self.objects.get(key))
            found = await verify(self.objects, manifest, lambda _done, _of: None)
            data = await self.objects.get(manifest["shards"][0]["uri"])
        except Unavailable:
            return False
        assert [one.faults for one in found.objects] == [()], found
        assert found.torch_fault == ""
        assert digest_after(step) in data
        return True

    async def swept(self) -> None:
        """Wait until nothing is left but complete checkpoints."""

        async def clean() -> bool:
            steps = await self.complete()
            keys = [info.key for info in await self.objects.list("jobs/")]
            uploads = await self.objects.unfinished_uploads("jobs/")
            names = (".metadata", "manifest.json", "rank-00000.shard")
            folders = [f"jobs/{self.job_id}/step-{step:08d}/gen-1/" for step in steps]
            self.left = (sorted(set(keys) - {f + n for f in folders for n in names}), uploads)
            return keys == [f + n for f in folders for n in names] and not uploads

        try:
            await until(clean)
        except AssertionError:
            raise AssertionError(f"left over: {self.left}") from None

    def _placement(self) -> Placement:
        join = self.joins[-1]
        host = HostPlacement(
            host_id=join.host_id, address=join.address, peer_port=join.peer_port, ranks=[0]
        )
        return Placement(layout=Layout(pp=1, dp_replicate=1, dp_shard=1, tp=1), hosts=[host])


def _step_of(key: str) -> int:
    return int(key.split("/")[2].removeprefix("step-"))


async def until(condition, *, what: str = ""):
    """Wait generously: a busy machine takes its time to start fifty processes."""
    return await waiting.until(condition, what=what, limit_s=120)


@asynccontextmanager
async def open_lab(directory: Path, servers: RunningServers, database_url: str):
    """Run everything until the block ends; nothing trains yet."""
    credentials = servers.servers.credentials
    bucket = RandomIds().new_id("crash")
    s3 = {
        "endpoint": servers.servers.s3_endpoint,
        "access_key": credentials.s3_access_key,
        "secret_key": credentials.s3_secret_key,
    }
    environment = {
        "EVERSTEP_NATS_URL": servers.servers.nats_url,
        "EVERSTEP_DATABASE_URL": database_url,
        **{f"EVERSTEP_S3_{name.upper()}": value for name, value in s3.items()},
        "EVERSTEP_S3_BUCKET": bucket,
        "EVERSTEP_S3_SECURE": "false",
        "EVERSTEP_LOG_FORMAT": "text",
        GATE: str(directory / "gate.sock"),
        **SWEEP,
    }
    async with AsyncExitStack() as stack:
        [host] = await stack.enter_async_context(hosts_on(directory, "h1", chips=1))
        gate = await stack.enter_async_context(open_gate(directory / "gate.sock"))
        bus = await stack.enter_async_context(NatsBus.open(servers.servers.nats_url, name="test"))
        await bus.wait_connected()
        objects = await stack.enter_async_context(S3Store.open(**s3, bucket=bucket, secure=False))
        zygote = stack.enter_context(open_zygote())
        (port,) = free_ports(1, RandomIds())
        of_registry = environment | {"EVERSTEP_HTTP_PORT": str(port)}
        registry = Party("registry", zygote, of_registry, directory / "registry.log")
        of_agent = environment | {
            "EVERSTEP_HOST_ID": HOST,
            "EVERSTEP_RUN_DIR": str(host.settings.run_dir),
            "EVERSTEP_MEMORY_DIR": str(host.settings.memory_dir),
            "EVERSTEP_UPLOAD_PART_BYTES": str(PART_BYTES),
        }
        agent = Party("agent", zygote, of_agent, directory / "agent.log")
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)
        )
        for party in (registry, agent):
            stack.push_async_callback(party.kill)
            await party.start()
        lab = Lab(
            job_id=RandomIds().new_id("job"),
            bus=bus,
            objects=objects,
            servers=servers,
            gate=gate,
            registry=registry,
            agent=agent,
            http=http,
            controller=FakeService(bus, "controller"),
        )
        await lab.listen()
        await lab.agent_is_up()
        await until(lambda: lab.joins, what="the host has joined")
        yield lab
