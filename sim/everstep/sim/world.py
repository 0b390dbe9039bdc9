"""The world: fleet, network, services, and everything that happens between them.

Made from one seed. Nothing in it reads a real clock, a real file or a real socket, so the same
seed gives the same trace, byte for byte, on any machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from everstep.agent.runs import Source, SourceKind
from everstep.core.errors import NotFoundError, Unavailable
from everstep.core.placement import Layout
from everstep.core.ports import ObjectInfo, StoredEvent
from everstep.core.spec import JobSpec
from everstep.objectstore.memory import MemoryObjects
from everstep.service.commands import send_command
from everstep.sim.agent import Agent
from everstep.sim.bits import Bits, Sharing
from everstep.sim.host import Host
from everstep.sim.keeping import Keeping
from everstep.sim.links import Links
from everstep.sim.loop import VirtualClock
from everstep.sim.memory import Copy
from everstep.sim.moments import Moments
from everstep.sim.network import Conditions, Network
from everstep.sim.numbers import Course, Numbers, decode_corrections
from everstep.sim.process import Database, install, unowned
from everstep.sim.remaking import Flaws, Remaking
from everstep.sim.samples import Samples
from everstep.sim.seeds import Seeds
from everstep.sim.services import SERVICES, Backing, Service
from everstep.sim.training import Pace, Training
from everstep.sim.truth import Truth
from everstep.wire.codec import from_wire
from everstep.wire.v1 import jobs_pb2
from everstep.wire.v1.agents_pb2 import StartRanks
from everstep.wire.v1.common_pb2 import CommandReply

COMMAND_S_MAX: Final = 5.0
COMMAND_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Sizes."""

    pods: int = 2
    hosts_per_pod: int = 3
    chips: int = 2


class Objects:
    """The object store, which may be away."""

    def __init__(self) -> None:
        self.memory = MemoryObjects()
        self.up = True

    async def put(self, key: str, data: bytes) -> None:
        """Store. Raises Unavailable."""
        await self._reach()
        await self.memory.put(key, data)

    async def put_file(self, key: str, path: str, *, size_bytes: int, offset: int = 0) -> None:
        """Nobody has files here."""
        raise AssertionError((key, path, size_bytes, offset))

    async def get(self, key: str) -> bytes:
        """Return an object. Raises NotFoundError, Unavailable."""
        await self._reach()
        return await self.memory.get(key)

    async def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream an object. Raises NotFoundError, Unavailable."""
        await self._reach()
        async for chunk in self.memory.chunks(key, chunk_bytes=chunk_bytes):
            yield chunk

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """List. Raises Unavailable."""
        await self._reach()
        return await self.memory.list(prefix)

    async def delete(self, key: str) -> None:
        """Remove. Raises Unavailable."""
        await self._reach()
        await self.memory.delete(key)

    async def _reach(self) -> None:
        await asyncio.sleep(0.01)
        if not self.up:
            raise Unavailable("the object store is away")


@dataclass(slots=True)
class Trace:
    """What happened, as text lines; ``digest`` compares two runs."""

    lines: list[str] = field(default_factory=list)

    def add(self, at_ms: int, who: str, what: str) -> None:
        """Append a line."""
        self.lines.append(f"{at_ms:>9} {who:<20} {what}")

    @property
    def digest(self) -> str:
        """Return a checksum of everything so far."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


class World:
    """Everything. Make it inside ``loop.run``."""

    def __init__(
        self,
        seed: int,
        *,
        fleet: Fleet | None = None,
        conditions: Conditions | None = None,
        pace: Pace | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        install(loop)
        self.seeds = Seeds(seed)
        self.clock = VirtualClock(loop)
        self.epoch_ms = self.clock.now_ms()
        self.pace = pace or Pace()
        self.trace = Trace()
        self.objects = Objects()
        self.network = Network(self.seeds.of("network"), conditions or Conditions())
        self.backing = Backing(clock=self.clock, objects=self.objects)
        self.services = {
            name: Service(name, self.network, self.backing, self.seeds) for name in SERVICES
        }
        self.hosts: dict[str, Host] = {}
        self.trainings: dict[tuple[str, int], Training] = {}
        self.launched: list[str] = []
        self.specs: dict[str, JobSpec] = {}  # as they were launched
        self.failures: list[str] = []  # of the world's own tasks: bugs
        self.on_begin: list[Callable[[Training], None]] = []
        self.numbers = Numbers()
        self.bits = Bits()
        self.flaws = Flaws()
        self.truth = Truth(self)
        self.keeping = Keeping(self)
        self.links = Links(self)
        self.moments = Moments(self.backing)
        self._twins = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._make_hosts(fleet or Fleet())
        self.network.on_drop(self._dropped)
        for name in SERVICES:
            self.backing.databases[name].on_append.append(self._stored(name))
        self.person = self.network.endpoint("person")

    @property
    def now_ms(self) -> int:
        """Milliseconds since the world began."""
        return self.clock.now_ms() - self.epoch_ms

    def note(self, who: str, what: str) -> None:
        """Write into the trace."""
        self.trace.add(self.now_ms, who, what)

    def physics(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let something take its course that no process can stop."""
        task = unowned(self._guarded(work))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except AssertionError as error:
            self.failures.append(f"{self.now_ms} ms: {error}")

    # Hosts.

    def power_on(self, host_id: str) -> None:
        """Start a machine and its agent, unless somebody else has done so."""
        host = self.hosts[host_id]
        if host.on:
            return
        host.on = True
        Agent(host).start()
        self.note(host_id, "power on")

    def start_agent(self, host_id: str) -> None:
        """Start a machine's agent again."""
        self.note(host_id, "agent started")
        Agent(self.hosts[host_id]).start()

    def cut_peers(self, host_id: str) -> None:
        """Cut a host from all others: its job's collectives hang."""
        host = self.hosts[host_id]
        host.data_link = False
        for run in host.runs.values():
            run.training.moving.clear()

    def mend_peers(self, host_id: str) -> None:
        """Bring the link back; collectives that have not failed yet go on."""
        host = self.hosts[host_id]
        host.data_link = True
        host.linked_s = asyncio.get_running_loop().time()
        for run in host.runs.values():
            run.training.resume()

    def vanish(self, host_id: str) -> None:
        """Lose a machine and its network at once."""
        self.note(host_id, "vanishes")
        self.truth.before_loss(self.hosts[host_id])
        self.hosts[host_id].vanish()

    def power_off(self, host_id: str) -> None:
        """Lose a machine."""
        self.note(host_id, "power off")
        self.truth.before_loss(self.hosts[host_id])
        self.hosts[host_id].power_off()

    def sound_s(self, host_id: str) -> float:
        """Return for how long a host has been on, with its agent up and every link in place."""
        host = self.hosts[host_id]
        agent = host.agent
        if not (host.on and host.data_link and agent is not None and agent.endpoint.connected):
            return 0.0
        since_s = max(agent.started_s, agent.endpoint.reachable_s, host.linked_s)
        sound_s = asyncio.get_running_loop().time() - since_s
        return min(sound_s, self.links.cut_s_ago(host_id))

    def control_s(self) -> float:
        """Return for how long every service, database and the bus have been up."""
        parts: list[Service | Database] = [
            *self.services.values(),
            *self.backing.databases.values(),
        ]
        if not self.network.server_up.is_set() or not all(part.up for part in parts):
            return 0.0
        since_s = max(self.network.server_up_s, *(part.since_s for part in parts))
        return asyncio.get_running_loop().time() - since_s

    def training(self, command: StartRanks, spec: JobSpec) -> Training:
        """Return the training that a host's ranks take part in."""
        job_id, generation = key = (command.job_id, command.generation)
        if key not in self.trainings:
            course = Course(self.numbers)
            corrections = decode_corrections(command.corrections)
            course.begin(max(command.restore_step, 0), corrections.skipped)
            layout = from_wire(command.layout, Layout)
            self.trainings[key] = Training(
                job_id=job_id,
                generation=generation,
                spec=spec,
                world_size=layout.world_size,
                restore_step=command.restore_step,
                pace=self.pace,
                random=self.seeds.of("training", job_id, generation),
                course=course,
                sharing=Sharing(
                    self.bits, job_id, layout, spec.corruption, data=repr(corrections.skipped)
                ),
                remaking=Remaking(self.flaws, self.bits, generation, layout, spec.corruption),
                samples=Samples(spec, layout, corrections),
                layout=layout,
                physics=self.physics,
                joined=self.links.joined,
                on_begin=self._began,
                on_commit=self._committed,
            )
        return self.trainings[key]

    async def read(
        self, host: Host, job_id: str, rank: int, step: int, source: Source
    ) -> Copy | None:
        """Return what a rank finds at a source of its restore plan. Raises Unavailable."""
        if source.kind == SourceKind.OWN_MEMORY:
            return host.memory.find(job_id, rank, step, own=True, generation=source.generation)
        if source.kind == SourceKind.OBJECT_STORE:
            return await self._download(rank, step, source)
        holder = self.hosts[source.host_id]
        here = holder is host
        if not here and (
            holder.agent is None or not self.links.reaches(host.host_id, holder.host_id)
        ):
            raise Unavailable(f"{holder.host_id} does not answer")
        return holder.memory.find(job_id, rank, step, generation=source.generation)

    async def _download(self, rank: int, step: int, source: Source) -> Copy | None:
        try:
            data = await self.objects.get(source.uri)
        except NotFoundError:
            return None
        state, _, stored_rank = data.decode().partition(" ")
        sound = stored_rank == str(rank)
        return Copy(rank=rank, step=step, generation=source.generation, state=state, sound=sound)

    # A person.

    async def order(self, command: Any) -> CommandReply:
        """Send the controller a command, until it answers."""
        while True:
            try:
                reply = await send_command(
                    self.person, "controller", command, CommandReply, timeout_s=COMMAND_S_MAX
                )
            except Unavailable:
                await asyncio.sleep(COMMAND_RETRY_S)
            else:
                name, outcome = type(command).__name__, reply.outcome
                answer = "accepted" if outcome.accepted else f"refused: {outcome.why}"
                self.note("person", f"{name}: {answer}")
                return reply

    async def launch(self, job_id: str, spec: JobSpec) -> None:
        """Submit a job."""
        self.specs[job_id] = spec
        command = jobs_pb2.LaunchJob(
            job_id=job_id, spec_json=spec.model_dump_json(), at_ms=self.clock.now_ms()
        )
        reply = await self.order(command)
        assert reply.outcome.accepted, reply.outcome

    # What is seen.

    def twin(self, name: str) -> Service:
        """Return a second instance of a service, not started yet."""
        self._twins += 1
        return Service(name, self.network, self.backing, self.seeds, instance=f"-twin{self._twins}")

    def _make_hosts(self, fleet: Fleet) -> None:
        for pod in range(fleet.pods):
            for number in range(fleet.hosts_per_pod):
                host_id = f"h{pod}-{number}"
                self.hosts[host_id] = Host(
                    self,
                    host_id,
                    pod=f"pod{pod}",
                    chips=fleet.chips,
                    random=self.seeds.of("host", host_id),
                )

    def _began(self, training: Training) -> None:
        if training.spec.audit is None:  # else it makes no history
            self.truth.began(training)
        for look in self.on_begin:
            look(training)
        name = f"{training.job_id}/{training.generation}"
        self.note(name, f"begins at step {training.step} with {training.state}")

    def _committed(self, training: Training) -> None:
        self.truth.committed(training)
        self.note(f"{training.job_id}/{training.generation}", f"step {training.step}")

    def _stored(self, service: str) -> Any:
        def tell(events: Sequence[StoredEvent]) -> None:
            for event in events:
                text = json.dumps(event.data, sort_keys=True, default=str)
                digest = hashlib.sha256(text.encode()).hexdigest()[:8]
                brief = _brief(event)
                self.note(service, f"{event.stream} v{event.version} {event.type} {brief}{digest}")

        return tell

    def _dropped(self, name: str) -> None:
        kind, _, host_id = name.partition(":")
        if kind == "agent":
            self.services["monitor"].tell_drop(host_id)


def _brief(event: StoredEvent) -> str:
    """Return the few fields that make a trace readable."""
    names = ("generation", "cause", "mark", "kind", "action", "hosts", "lost_hosts", "step", "why")
    found = [
        f"{name}={event.data[name]}" for name in names if event.data.get(name) not in (None, "")
    ]
    return f"{' '.join(str(one)[:60] for one in found)} "
