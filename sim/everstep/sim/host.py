"""A host: a machine with memory and ranks, and the agent that speaks for it.

The machine (power, memory, ranks, kept exit reports) outlives the agent, as on a real host. What
the agent answers follows ``everstep.agent.commands``; what it tells follows ``membership``,
``reports``, ``steps``, ``replication`` and ``upload``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from everstep.agent.codec import decode_schedule
from everstep.agent.listener import SNAPSHOTS_BEFORE_TIDY
from everstep.core.placement import HostPlacement, Layout
from everstep.core.schedule import Schedule
from everstep.core.spec import parse_spec_json
from everstep.sim import loading
from everstep.sim.memory import HostMemory
from everstep.sim.training import FRESH, Training, snapshot_of
from everstep.wire.codec import from_wire
from everstep.wire.v1 import agents_pb2 as wire

if TYPE_CHECKING:
    from everstep.sim.agent import Agent
    from everstep.sim.world import World


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
    shown_step: int = FRESH  # of the newest snapshot of either kind: of its bits is told
    durable: Durable | None = None
    intent: str = "run"
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    broken: asyncio.Event = field(default_factory=asyncio.Event)  # a rank went in mid-step
    replicate: asyncio.Event = field(default_factory=asyncio.Event)
    last_step: int = 0
    made_ms: int = 0  # when, by this host's clock
    copying: bool = False
    schedule: Schedule | None = None  # the newest that was told; None: the spec's
    followed: Schedule | None = None  # by the step that was made last
    kept: bool = False  # of that step
    kept_durable: bool = False
    stall_ms: int = 0
    shadow_ms: int = 0
    snapshots_count: int = 0
    stopped: set[int] = field(default_factory=set)  # ranks that stand still, by a signal

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
        # As everstep.agent.listener: with the second one, all ranks hold a newer step twice.
        self.snapshots_count += 1
        if self.snapshots_count == SNAPSHOTS_BEFORE_TIDY:
            self.host.memory.drop_old(self.training.job_id)
        for rank in self.ranks:
            self.host.memory.open(self.training.job_id, rank)
        self.held_step = self.shown_step = step
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
        self.held_step, self.shown_step = step, max(self.shown_step, step)
        self.replicate.set()

    def keep_durable(self, step: int, state: str) -> None:
        """Take a durable snapshot; it leaves in the background."""
        self.shown_step = step
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
        if exit_class not in {wire.FINISHED, wire.STOPPED} and not self.training.ending:
            self.broken.set()
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
        self.wrong = ""  # the probe that it fails, if it computes wrongly
        self.probe_delay_s = 0.0  # that its probes take more
        self.memory = HostMemory()
        self.runs: dict[str, HostRun] = {}
        self.exits: list[wire.RankReport] = []
        self.reports: list[wire.RankReport] = []  # on its disk, until the bus has them
        self.uploads: list[Durable] = []
        self.told: list[wire.StepMetrics] = []
        self.errors: dict[tuple[str, str], tuple[int, int]] = {}  # count, when it grew
        self.agent: Agent | None = None

    def now_ms(self) -> int:
        """Return the time by this host's clock, which may be wrong."""
        return self.world.clock.now_ms() + self.skew_ms

    def tell_agent(self, what: str, run: HostRun, rank: int = -1) -> None:
        """Let the agent see something of its ranks, if there is an agent."""
        if self.agent is not None:
            self.agent.see(what, run, rank)

    def count_error(self, kind: str, part: str = "gpu0", *, by: int = 1) -> None:
        """Let the host's kernel or drivers count errors."""
        count, _ = self.errors.get((kind, part), (0, 0))
        self.errors[kind, part] = (count + by, self.world.now_ms)
        self.world.note(self.host_id, f"counts {by} {kind}")

    def told_errors(self) -> list[wire.ErrorCount]:
        """Return what the agent tells of them."""
        return [
            wire.ErrorCount(kind=kind, part=part, count=count, age_ms=self.world.now_ms - grew_ms)
            for (kind, part), (count, grew_ms) in sorted(self.errors.items())
        ]

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
        self.errors.clear()  # a new boot counts anew
        self.exits.clear()
        self.uploads.clear()
        self.told.clear()

    def kill_rank(self, rank: int, *, signal: int = 9) -> None:
        """Kill one rank; its collectives break for everybody."""
        for run in list(self.runs.values()):
            if rank in run.alive:
                run.end(rank, wire.KILLED, signal=signal)
                run.training.break_up(f"rank {rank} was killed")

    def stop_rank(self, rank: int) -> None:
        """Stop one rank by a signal: it ends nowhere and fails nowhere, the others wait for it."""
        for run in self.runs.values():
            if rank in run.alive:
                run.stopped.add(rank)
                run.training.hang(f"rank {rank} stands still")

    def begin(self, command: wire.StartRanks, placement: HostPlacement) -> None:
        """Fork the ranks of a generation and let them load their state."""
        spec = parse_spec_json(command.spec_json)
        self.memory.set_aside(command.job_id, from_wire(command.layout, Layout))
        self.memory.forget_after(command.job_id, command.restore_step)
        training = self.world.training(command, spec)
        run = HostRun(
            host=self,
            training=training,
            placement=placement,
            alive=set(placement.ranks),
            replication_off=not placement.replica_host_id,
            schedule=decode_schedule(command.schedule) if command.HasField("schedule") else None,
        )
        self.runs[command.job_id] = run
        training.join(run)
        if training.broken:
            run.echo(training.broken, training.pace.echo_s)
        loading.begin(self, run, command)
