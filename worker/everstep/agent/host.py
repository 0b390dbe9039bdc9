"""One host's agent, put together: the order in which its parts come up, and go down.

What protects training comes first (memory, peers, fork server, ranks) and needs no bus; what tells
and obeys the control plane joins in when the bus is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everstep.agent import membership
from everstep.agent.commands import HostCommands
from everstep.agent.counting import open_counters
from everstep.agent.endings import Endings
from everstep.agent.forks import ForkServer
from everstep.agent.listener import RankListener
from everstep.agent.membership import HostFacts
from everstep.agent.peer_server import PeerServer
from everstep.agent.peers import keep_found
from everstep.agent.ports import PortChooser
from everstep.agent.ranks import RankChannel
from everstep.agent.rate import HostRate
from everstep.agent.replication import Replicator
from everstep.agent.reports import RankReporter, Reports
from everstep.agent.restore import Restorer
from everstep.agent.runs import RunFiles, Runs
from everstep.agent.settings import AgentSettings, socket_path
from everstep.agent.shards import BegunFiles, ShardFiles
from everstep.agent.steps import StepMessages
from everstep.agent.store import HostMemory
from everstep.agent.supervisor import Supervisor
from everstep.agent.transfer import Transfers
from everstep.agent.upload import Uploads
from everstep.core.errors import Unavailable
from everstep.core.ports import Bus, MultipartStore
from everstep.core.spec import parse_spec_json
from everstep.core.system import Clock, IdSource

log = logging.getLogger(__name__)

# Threads that wait for sockets and checksums: a push and a restore a rank, two uploads, and room.
THREADS_MAX: Final = 64
CANCEL_AGAIN_S: Final = 0.2  # tasks end at once, but for the one in a million of ``_Tasks.end``


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAgent:
    """A running agent."""

    facts: HostFacts
    runs: Runs
    memory: HostMemory
    reports: Reports
    forks: ForkServer
    commands: HostCommands
    bus: Bus
    clock: Clock

    @property
    def idle(self) -> bool:
        """Whether no rank runs here."""
        return not any(run.alive for run in self.runs.all())

    async def leave(self) -> None:
        """Take the host out of service: tell the inventory and end the fork server."""
        await membership.leave(self.bus, self.facts, self.clock)
        self.forks.end()


@asynccontextmanager
async def open_agent(
    settings: AgentSettings,
    bus: Bus,
    objects: MultipartStore | None,
    *,
    clock: Clock,
    ids: IdSource,
    fork_arguments: Sequence[str] = (),
) -> AsyncIterator[HostAgent]:
    """Run an agent until the block ends; ranks and fork server go on without it.

    Args:
        settings: of this host.
        bus: need not be connected yet.
        objects: None when the host has no object store.
        clock: real, or a test's.
        ids: for the agent's epoch.
        fork_arguments: extra ones for the fork server's command line.

    Raises:
        Unavailable: another agent serves this host.
    """
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_only_agent(settings.run_dir))
        memory = HostMemory(settings.memory_dir, settings.run_dir / "forgotten.json")
        peers = PeerServer(memory, settings.host_id)
        epoch = ids.new_id("epoch")
        chooser = PortChooser(epoch, settings.address)
        facts = _facts(settings, epoch, _listen(settings, peers, chooser))
        stack.callback(peers.close)
        executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="agent")
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        tasks = await stack.enter_async_context(_tasks())
        parts = _Parts(settings, facts, memory, objects, clock, executor, tasks, fork_arguments)
        stack.callback(parts.close)
        supervisor = parts.supervisor()
        for record in parts.runs.files.load():
            supervisor.adopt(record)
        await parts.channel.start(parts.listener(supervisor))
        stack.push_async_callback(parts.channel.close)
        commands = parts.commands(supervisor, chooser)
        for work in (
            parts.forks.run(parts.endings(supervisor)),
            parts.steps.tick(),
            parts.steps.run(bus),
            parts.reports.run(bus),
            parts.uploads.run(bus),
            membership.keep_joined(bus, facts, clock),
            keep_found(bus, parts.runs, parts.replicator),
            parts.beat(bus),
            parts.counters.keep_looking(),
            parts.counters.keep_reporting(bus, facts.host_id),
            _serve(commands, bus),
        ):
            tasks.spawn(work)
        yield HostAgent(
            facts=facts,
            runs=parts.runs,
            memory=memory,
            reports=parts.reports,
            forks=parts.forks,
            commands=commands,
            bus=bus,
            clock=clock,
        )


class _Parts:
    """The parts, wired by hand."""

    def __init__(
        self,
        settings: AgentSettings,
        facts: HostFacts,
        memory: HostMemory,
        objects: MultipartStore | None,
        clock: Clock,
        executor: ThreadPoolExecutor,
        tasks: _Tasks,
        fork_arguments: Sequence[str],
    ) -> None:
        host_id, run_dir = facts.host_id, facts.run_dir
        self.facts = facts
        self.memory = memory
        self.clock = clock
        self.executor = executor
        self.spawn = tasks.spawn
        self.counters = open_counters(settings, clock, executor)
        self.runs = Runs(RunFiles(run_dir / "jobs"))
        self.reports = Reports(run_dir / "reports", host_id)
        self.reporter = RankReporter(self.reports, host_id, facts.agent_epoch, clock)
        self.steps = StepMessages(host_id, memory, clock)
        self.channel = RankChannel(facts.agent_socket)
        self.replicator = Replicator(memory, clock, executor, tasks.spawn)
        self.restorer = Restorer(host_id, memory, objects, executor)
        self.uploads = Uploads(
            host_id,
            memory,
            self._transfers(objects, run_dir, settings.upload_part_bytes),
            ShardFiles(run_dir / "shards"),
            clock,
            executor,
            tasks.spawn,
            self._upload_limit,
        )
        fork_socket = socket_path(settings.run_dir, "fork.sock")
        self.forks = ForkServer(run_dir, fork_socket, fork_arguments)

    def _transfers(
        self, objects: MultipartStore | None, run_dir: Path, part_bytes: int
    ) -> Transfers | None:
        if objects is None:
            return None
        begun, rate = BegunFiles(run_dir / "uploads"), HostRate(self.clock)
        return Transfers(objects, begun, rate, self.executor, part_bytes)

    def _upload_limit(self, job_id: str) -> int:
        run = self.runs.get(job_id)
        if run is None:
            return 0
        return parse_spec_json(run.start.spec_json).checkpoint.upload_bytes_per_s_max

    def supervisor(self) -> Supervisor:
        return Supervisor(
            facts=self.facts,
            runs=self.runs,
            memory=self.memory,
            forks=self.forks,
            channel=self.channel,
            restorer=self.restorer,
            replicator=self.replicator,
            uploads=self.uploads,
            steps=self.steps,
            reporter=self.reporter,
            executor=self.executor,
            spawn=self.spawn,
        )

    def endings(self, supervisor: Supervisor) -> Endings:
        return Endings(
            runs=self.runs,
            forks=self.forks,
            channel=self.channel,
            steps=self.steps,
            reporter=self.reporter,
            clock=self.clock,
            spawn=self.spawn,
            fork=supervisor.fork,
        )

    def listener(self, supervisor: Supervisor) -> RankListener:
        return RankListener(
            runs=self.runs,
            memory=self.memory,
            replicator=self.replicator,
            uploads=self.uploads,
            steps=self.steps,
            reporter=self.reporter,
            executor=self.executor,
            channel=self.channel,
            slot_bad=supervisor.slot_bad,
        )

    def commands(self, supervisor: Supervisor, chooser: PortChooser) -> HostCommands:
        return HostCommands(
            facts=self.facts,
            runs=self.runs,
            supervisor=supervisor,
            memory=self.memory,
            restorer=self.restorer,
            forks=self.forks,
            ports=chooser,
            steps=self.steps,
            clock=self.clock,
            counters=self.counters,
            reports=self.reports,
        )

    async def beat(self, bus: Bus) -> None:
        await membership.beat(
            bus,
            self.facts,
            self.runs.all,
            self.memory,
            self.reports,
            self.replicator,
            self.counters,
            self.clock,
        )

    def close(self) -> None:
        self.replicator.close()
        self.uploads.close()


class _Tasks:
    """The agent's tasks: one that fails ends the agent, which comes back and adopts its ranks."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self) -> None:
        """Cancel all and wait.

        More than once, because asyncio.wait_for may swallow a cancellation that meets its result
        (python/cpython#86296, mended in 3.12).
        """
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCEL_AGAIN_S)


@asynccontextmanager
async def _tasks() -> AsyncIterator[_Tasks]:
    async with asyncio.TaskGroup() as group:
        tasks = _Tasks(group)
        try:
            yield tasks
        finally:
            await tasks.end()


async def _serve(commands: HostCommands, bus: Bus) -> None:
    subscriptions = await commands.serve(bus)
    log.info("answers commands")
    try:
        await asyncio.Event().wait()
    finally:
        for subscription in subscriptions:
            await subscription.close()


@contextlib.contextmanager
def _only_agent(run_dir: Path) -> Any:
    descriptor = os.open(run_dir / "agent.pid", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another agent serves {run_dir}") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def _listen(settings: AgentSettings, peers: PeerServer, chooser: PortChooser) -> int:
    """Open the snapshot server on the port that placements of running jobs name, if there is one.

    Returns:
        the port.
    """
    remembered = settings.run_dir / "peer.port"
    port = settings.peer_port
    if not port and remembered.exists():
        port = int(remembered.read_text())
    port = port or chooser.choose()
    try:
        peers.start(settings.address, port)
    except OSError as error:
        if settings.peer_port:
            raise
        log.warning("peer port %d: %s: takes another; who keeps copies here finds it", port, error)
        port = chooser.choose()
        peers.start(settings.address, port)
    remembered.write_text(str(port))
    return port


def _facts(settings: AgentSettings, agent_epoch: str, peer_port: int) -> HostFacts:
    return HostFacts(
        host_id=settings.host_id,
        agent_epoch=agent_epoch,
        pod=settings.pod,
        power=settings.power,
        chips=settings.chips,
        address=settings.address,
        peer_port=settings.advertised_peer_port or peer_port,
        interface=settings.interface,
        emulated=settings.emulated,
        run_dir=settings.run_dir.absolute(),
        memory_dir=settings.memory_dir.absolute(),
        agent_socket=socket_path(settings.run_dir, "agent.sock"),
    )
