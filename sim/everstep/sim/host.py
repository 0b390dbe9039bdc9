"""A host: a machine with memory and ranks, and the agent that speaks for it.

The machine (power, memory, ranks, kept exit reports) outlives the agent, as on a real host. What
the agent answers follows ``everstep.agent.commands``; what it tells follows ``membership``,
``reports``, ``steps``, ``replication`` and ``upload``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from everstep.agent.codec import decode_sources
from everstep.agent.runs import RankRestore, Source, SourceKind
from everstep.core.errors import Unavailable
from everstep.core.placement import HostPlacement
from everstep.core.spec import parse_spec_json
from everstep.sim.memory import Copy, HostMemory
from everstep.sim.training import FRESH, Training, snapshot_of
from everstep.wire.v1 import agents_pb2 as wire

if TYPE_CHECKING:
    from everstep.sim.agent import Agent
    from everstep.sim.world import World


# As everstep.agent.restore.
PATIENCE_S: Final = {
    SourceKind.OWN_MEMORY: 2.0,
    SourceKind.PEER_MEMORY: 2.0,
    SourceKind.OBJECT_STORE: 60.0,
}


@dataclass(slots=True, kw_only=True)
class Durable:
    """A durable snapshot on its way to the object store."""

    job_id: str
    generation: int
    step: int
    state: str
    world_size: int
    ranks: tuple[int, ...]
    stored: bool = False


@dataclass(slots=True, kw_only=True)
class HostRun:
    """The ranks of one generation on one host; the fork server's children."""

    host: Host
    training: Training
    placement: HostPlacement
    alive: set[int]
    replicated_step: int = FRESH
    replication_off: bool = False
    held_step: int = FRESH
    durable: Durable | None = None
    intent: str = "run"
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    replicate: asyncio.Event = field(default_factory=asyncio.Event)
    last_step: int = 0
    made_ms: int = 0  # when, by this host's clock
    copying: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them, dead or alive."""
        return self.placement.ranks

    @property
    def replicated(self) -> bool:
        """What its ranks vote: the newest snapshot also lies in the peer's memory."""
        if self.held_step == FRESH or self.replication_off:
            return True
        return self.replicated_step >= self.held_step

    @property
    def durable_busy(self) -> bool:
        """What its ranks vote: the durable slot is not stored yet."""
        return self.durable is not None

    def begin_snapshot(self, step: int, state: str, copy_s: float) -> None:
        """Copy every rank's state beside the next step; what the older slot held is gone at once.

        The step is told when it is kept.
        """
        for rank in self.ranks:
            self.host.memory.open(self.training.job_id, rank)
        self.held_step = step
        self.copying = True
        self.host.world.physics(self._become_whole(step, state, copy_s, self.host.now_ms()))

    async def _become_whole(self, step: int, state: str, copy_s: float, made_ms: int) -> None:
        await asyncio.sleep(copy_s)
        self.copying = False
        if self.alive and self.intent != "kill":
            self.snapshot(step, state)
            self.stepped(step, made_ms)

    def snapshot(self, step: int, state: str) -> None:
        """Keep a memory snapshot of every rank that lives."""
        job_id, generation = self.training.job_id, self.training.generation
        for rank in sorted(self.alive):
            copy = snapshot_of(rank, generation, step, state)
            written = self.host.memory.write(job_id, copy, own=True, generation=generation)
            assert written, f"fenced rank {rank} of {job_id} wrote a snapshot"
        self.held_step = step
        self.replicate.set()

    def keep_durable(self, step: int, state: str) -> None:
        """Take a durable snapshot; it leaves in the background."""
        self.durable = Durable(
            job_id=self.training.job_id,
            generation=self.training.generation,
            step=step,
            state=state,
            world_size=self.training.world_size,
            ranks=self.ranks,
        )
        self.host.tell_agent("upload", self)

    def stepped(self, step: int, made_ms: int) -> None:
        """Tell the agent of a completed step."""
        self.last_step, self.made_ms = step, made_ms
        self.host.tell_agent("step", self)

    def leave(self, *, stopped: bool) -> None:
        """Every rank's main returns."""
        for rank in sorted(self.alive):
            self.end(rank, wire.STOPPED if stopped else wire.FINISHED)

    def end(
        self, rank: int, exit_class: wire.ExitClass, *, error: str = "", signal: int = 0
    ) -> None:
        """A rank's process is over; the fork server keeps the report until an agent takes it."""
        if rank not in self.alive:
            return
        self.alive.discard(rank)
        if self.intent != "kill":
            self.host.exits.append(
                wire.RankReport(
                    host_id=self.host.host_id,
                    job_id=self.training.job_id,
                    generation=self.training.generation,
                    rank=rank,
                    kind=wire.RANK_EXITED,
                    exit_class=exit_class,
                    signal=signal,
                    error=error,
                    step=self.last_step,
                    at_ms=self.host.now_ms(),
                )
            )
            self.host.tell_agent("exits", self)
        if not self.alive:
            self.gone.set()

    def echo(self, why: str, delay_s: float) -> None:
        """Collectives of the ranks that still live fail after ``delay_s``."""
        self.host.world.physics(self._echo(why, delay_s))

    async def _echo(self, why: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        for rank in sorted(self.alive):
            if self.intent != "kill":
                self.host.tell_agent("echo", self, rank)
                self.end(rank, wire.COLLECTIVE, error=f"collective failed: {why}")

    def kill(self) -> None:
        """End every rank at once, without a word: on a command, or with the power."""
        self.intent = "kill"
        self.alive.clear()
        self.gone.set()
        self.training.break_up(f"ranks on {self.host.host_id} were ended")

    def vanish(self) -> None:
        """Be gone without a reset: the others' collectives hang, and time out at last."""
        self.intent = "kill"
        self.alive.clear()
        self.gone.set()
        self.training.hang(f"nothing is heard of {self.host.host_id}")


class Host:
    """One machine."""

    def __init__(self, world: World, host_id: str, *, pod: str, chips: int, random: Random) -> None:
        self.world = world
        self.host_id = host_id
        self.pod = pod
        self.chips = chips
        self.random = random
        self.on = False
        self.data_link = True  # to its peers
        self.linked_s = 0.0  # since when
        self.skew_ms = 0
        self.boots = 0
        self.memory = HostMemory()
        self.runs: dict[str, HostRun] = {}
        self.exits: list[wire.RankReport] = []
        self.reports: list[wire.RankReport] = []  # on its disk, until the bus has them
        self.uploads: list[Durable] = []
        self.told: list[wire.StepMetrics] = []
        self.agent: Agent | None = None

    def now_ms(self) -> int:
        """Return the time by this host's clock, which may be wrong."""
        return self.world.clock.now_ms() + self.skew_ms

    def tell_agent(self, what: str, run: HostRun, rank: int = -1) -> None:
        """Let the agent see something of its ranks, if there is an agent."""
        if self.agent is not None:
            self.agent.see(what, run, rank)

    def power_off(self) -> None:
        """Lose the machine: agent, ranks and memory."""
        assert self.on
        self.on = False
        if self.agent is not None:
            self.agent.kill()
        self._lose_memory()
        runs, self.runs = list(self.runs.values()), {}
        for run in runs:
            run.kill()

    def vanish(self) -> None:
        """Lose the machine and its network at once: no connection is reset, collectives hang."""
        assert self.on
        self.on = False
        runs, self.runs = list(self.runs.values()), {}
        for run in runs:
            run.vanish()
        if self.agent is not None:
            self.agent.vanish()
        self._lose_memory()

    def _lose_memory(self) -> None:
        self.memory = HostMemory()
        self.exits.clear()
        self.uploads.clear()
        self.told.clear()

    def kill_rank(self, rank: int, *, signal: int = 9) -> None:
        """Kill one rank; its collectives break for everybody."""
        for run in list(self.runs.values()):
            if rank in run.alive:
                run.end(rank, wire.KILLED, signal=signal)
                run.training.break_up(f"rank {rank} was killed")

    def begin(self, command: wire.StartRanks, placement: HostPlacement) -> None:
        """Fork the ranks of a generation and let them load their state."""
        spec = parse_spec_json(command.spec_json)
        self.memory.forget_after(command.job_id, command.restore_step)
        training = self.world.training(
            command.job_id, command.generation, spec, command.restore_step
        )
        run = HostRun(
            host=self,
            training=training,
            placement=placement,
            alive=set(placement.ranks),
            replication_off=not placement.replica_host_id,
        )
        self.runs[command.job_id] = run
        training.join(run)
        if training.broken:
            run.echo(training.broken, training.pace.echo_s)
        for restore in decode_sources(command.sources, self.host_id):
            self.world.physics(self._restore(run, restore, command.restore_step))
        if command.restore_step == FRESH:
            for rank in placement.ranks:
                self.world.physics(self._fresh(run, rank))

    async def _fresh(self, run: HostRun, rank: int) -> None:
        await asyncio.sleep(run.training.pace.load_s)
        if rank in run.alive:
            run.training.restored(rank, "fresh")
            await self._time_out(run, rank)

    async def _restore(self, run: HostRun, restore: RankRestore, step: int) -> None:
        """Take the first source that works, as ``everstep.agent.restore`` does."""
        if step == FRESH:
            return
        training, rank = run.training, restore.rank
        refused: list[wire.RefusedSource] = []
        loop = asyncio.get_running_loop()
        began_s, left = loop.time(), list(restore.sources)
        while left:
            away = []
            for source in left:
                await asyncio.sleep(training.pace.load_s * (0.5 + self.random.random()))
                if rank not in run.alive:
                    return
                try:
                    copy = await self.world.read(self, training.job_id, rank, step, source)
                except Unavailable:
                    away.append(source)
                    continue
                if rank not in run.alive:
                    return
                if copy is not None and copy.sound:
                    self._loaded(run, copy, refused)
                    await self._time_out(run, rank)
                    return
                refused.append(self._refused(step, source, absent=copy is None))
            waited_s = loop.time() - began_s
            left = [one for one in away if waited_s < PATIENCE_S[one.kind]]
            await asyncio.sleep(1.0 if left else 0.0)
        self._tell(run, rank, wire.START_FAILED, step, refused)
        run.end(rank, wire.RESTORE_FAILED, error=f"no source of step {step} could be loaded")
        training.break_up(f"rank {rank} could not be restored")

    def _refused(self, step: int, source: Source, *, absent: bool) -> wire.RefusedSource:
        where = source.host_id or source.uri
        return wire.RefusedSource(
            step=step,
            kind=source.kind,
            host_id=source.host_id or self.host_id,
            uri=source.uri,
            detail=f"{where}: {'absent' if absent else 'bad checksum'}",
        )

    def _loaded(self, run: HostRun, copy: Copy, refused: list[wire.RefusedSource]) -> None:
        training = run.training
        own = self.memory.find(training.job_id, copy.rank, copy.step, own=True)
        if own is None or not own.sound:
            self.memory.write(training.job_id, copy, own=True, generation=training.generation)
        run.held_step = run.last_step = copy.step
        run.replicate.set()
        if refused:
            self._tell(run, copy.rank, wire.RANK_READY, copy.step, refused)
        training.restored(copy.rank, copy.state)

    def _tell(
        self,
        run: HostRun,
        rank: int,
        kind: wire.ReportKind,
        step: int,
        refused: list[wire.RefusedSource],
    ) -> None:
        """Report how a rank's restore went, and which of its sources could not be used."""
        failed = kind == wire.START_FAILED
        self.exits.append(
            wire.RankReport(
                host_id=self.host_id,
                job_id=run.training.job_id,
                generation=run.training.generation,
                rank=rank,
                kind=kind,
                exit_class=wire.RESTORE_FAILED if failed else wire.EXIT_CLASS_UNSPECIFIED,
                error=f"no source of step {step} could be loaded" if failed else "",
                restored_step=step,
                refused_sources=refused,
                at_ms=self.now_ms(),
            )
        )
        self.tell_agent("exits", run)

    async def _time_out(self, run: HostRun, rank: int) -> None:
        """A rendezvous that does not come about fails after the collective timeout."""
        training = run.training
        await asyncio.sleep(training.spec.recovery.collective_timeout_s)
        if rank in run.alive and len(training.ready) < training.world_size:
            training.break_up("the rendezvous timed out")
