"""A world with its services up and its invariants watched, for scenarios and for the swarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from everstep.controller.auditing import is_audit
from everstep.controller.events import GenerationBegun, RestoreDecided
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.errors import EverstepError
from everstep.core.ports import StoredEvent
from everstep.core.spec import JobSpec, parse_spec
from everstep.host_inventory.state import HostState
from everstep.monitor.events import IncidentOpened
from everstep.service.commands import send_command
from everstep.sim.books import Books
from everstep.sim.invariants import Invariants
from everstep.sim.network import Conditions
from everstep.sim.patience import Patience
from everstep.sim.services import CODECS
from everstep.sim.training import Training
from everstep.sim.world import Fleet, World
from everstep.wire.v1 import hosts_pb2, jobs_pb2
from everstep.wire.v1.common_pb2 import CommandReply

SETTLE_S: Final = 7.0  # the monitor judges nobody in its first seconds
HEAL_S: Final = 900.0  # by then a repaired world must have finished its jobs
LOOK_S: Final = 0.05
# A host that failed in the last seconds is held out for five minutes at its sixth relapse.
SPARES_S: Final = 600.0
CLEAR_S: Final = 5.0
LAST_EVENTS_S: Final = 10.0
COMMAND_S_MAX: Final = 5.0
STEPS: Final = 60


class Stage:
    """Sets a world up, waits for things in it, and says at the end what is wrong."""

    def __init__(
        self, seed: int, *, fleet: Fleet | None = None, conditions: Conditions | None = None
    ) -> None:
        self.world = World(seed, fleet=fleet, conditions=conditions)
        self.invariants = Invariants(self.world)
        self.books = Books(self.world)
        self._patience = Patience(self.world, self.invariants)
        # What a person does at the end: nothing about hosts that come back by themselves, and
        # begin failed jobs again.
        self.waits_for_returns = False
        self.reopens = False

    async def up(self) -> None:
        """Start everything, and wait until the monitor judges."""
        for service in self.world.services.values():
            service.start()
        for host_id in self.world.hosts:
            self.world.power_on(host_id)
        self.world.physics(self._patience.watch())
        await asyncio.sleep(SETTLE_S)

    async def until(self, condition: Callable[[], Any], what: str, *, limit_s: float) -> None:
        """Let time pass until something holds."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + limit_s
        while not condition():
            assert loop.time() < deadline_s, f"did not happen within {limit_s} s: {what}"
            await asyncio.sleep(LOOK_S)

    async def step_reached(self, job_id: str, step: int, *, limit_s: float = 300.0) -> None:
        """Wait until a job has completed a step in its newest generation."""
        await self.until(
            lambda: (run := self.training(job_id)) is not None and run.step >= step,
            f"{job_id} at step {step}",
            limit_s=limit_s,
        )

    async def stored(self, job_id: str, step: int, *, limit_s: float = 120.0) -> None:
        """Wait until a job's checkpoint of a step is complete."""
        catalog = self.world.backing.catalog
        await self.until(
            lambda: any(
                one.job_id == job_id and one.step == step and one.manifest_uri
                for one in catalog.every()
            ),
            f"checkpoint of {job_id} at step {step}",
            limit_s=limit_s,
        )

    async def running(self, job_id: str, generation: int, *, limit_s: float = 300.0) -> None:
        """Wait until a generation steps."""
        await self.until(
            lambda: (
                (run := self.training(job_id)) is not None
                and run.generation >= generation
                and run.step > max(run.restore_step, 0)
            ),
            f"{job_id} generation {generation} stepping",
            limit_s=limit_s,
        )

    def training(self, job_id: str) -> Training | None:
        """Return the newest generation of a job that has ranks."""
        generations = [g for job, g in self.world.trainings if job == job_id]
        return self.world.trainings[job_id, max(generations)] if generations else None

    def hosts_of(self, job_id: str) -> list[str]:
        """Return the hosts of a job's newest generation, by first rank."""
        training = self.training(job_id)
        assert training is not None, f"{job_id} has not begun"
        return sorted(training.runs, key=lambda host_id: training.runs[host_id].ranks)

    def job(self, job_id: str) -> Job:
        """Return the controller's state of a job."""
        return self.invariants.jobs[f"job-{job_id}"]

    async def finish(self, jobs: int) -> None:
        """Bring back what is away, clear what is cordoned, and wait until the jobs have ended."""
        world, loop = self.world, asyncio.get_running_loop()
        world.note("world", "all faults are over")
        for host_id, host in world.hosts.items():
            if not host.on:
                world.power_on(host_id)
            elif host.agent is None:
                world.start_agent(host_id)
            host.errors.clear()
        world.flaws.hosts.clear()
        deadline_s = loop.time() + HEAL_S
        while loop.time() < deadline_s and not self._ended(jobs):
            await self.clear()
            await self._go_on()
            await asyncio.sleep(CLEAR_S)
        await asyncio.sleep(LAST_EVENTS_S)

    async def left_over(self) -> list[str]:
        """Wait until every host is a spare again, and empty; returns what is wrong with others."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SPARES_S
        while loop.time() < deadline_s:
            hosts = self.invariants.fleet.hosts.values()
            out = [host for host in hosts if host.state is not HostState.SPARE]
            full = {host_id: host.memory.kept() for host_id, host in self.world.hosts.items()}
            full = {host_id: kept for host_id, kept in full.items() if kept}
            if not out and not full:
                return []
            await self.clear()
            await asyncio.sleep(CLEAR_S)
        return [
            *(f"{host.host_id} is {host.state} for good: {host.cordon}" for host in out),
            *(f"{host_id} keeps copies of jobs that are over: {full[host_id]}" for host_id in full),
        ]

    async def _go_on(self) -> None:
        """Let jobs go on that somebody has to look at, and begin failed ones again."""
        for job in [one for _, one in sorted(self.invariants.jobs.items())]:
            at_ms = self.world.clock.now_ms()
            if job.phase is Phase.PAUSED:
                # Who has looked at a job that is held for its batches has it do without them.
                resume = jobs_pb2.ResumeJob(job_id=job.job_id, at_ms=at_ms)
                resume.skip_batches = bool(job.questioned)
                await self.world.order(resume)
            elif job.phase is Phase.FAILED and self.reopens and not is_audit(job):
                command = jobs_pb2.RestartJob(job_id=job.job_id, from_step=-1, at_ms=at_ms)
                await self.world.order(command)

    async def clear(self, *only: str) -> None:
        """Clear every cordoned host, or only these, as a person would after a look at it."""
        for host_id, host in sorted(self.invariants.fleet.hosts.items()):
            if host.cordon is None or (only and host_id not in only):
                continue
            if self.waits_for_returns and host.cordon.returns:
                continue
            at_ms = self.world.clock.now_ms()
            command = hosts_pb2.UncordonHost(host_id=host_id, at_ms=at_ms)
            try:
                await send_command(
                    self.world.person,
                    "host_inventory",
                    command,
                    CommandReply,
                    timeout_s=COMMAND_S_MAX,
                )
            except EverstepError:
                continue

    def _ended(self, jobs: int) -> bool:
        known = self.invariants.jobs.values()
        over = TERMINAL - {Phase.FAILED} if self.reopens else TERMINAL
        audits = [job for job in known if is_audit(job)]
        return len(known) - len(audits) == jobs and all(
            job.phase in (TERMINAL if is_audit(job) else over) for job in known
        )

    async def wrong(self) -> list[str]:
        """Return what does not hold, now that all should be well."""
        return [*self.invariants.at_end(), *await self.books.at_end()]

    async def incidents(self, job_id: str) -> list[IncidentOpened]:
        """Return the job's incidents so far."""
        events = await self.events("monitor")
        return [e for e in events if isinstance(e, IncidentOpened) and e.job_id == job_id]

    async def restores(self, job_id: str) -> list[int]:
        """Return the step that each planned generation of a job went on from."""
        events = await self.events("controller")
        return [e.step for e in events if isinstance(e, RestoreDecided) and e.job_id == job_id]

    async def causes(self, job_id: str) -> list[str]:
        """Return why each generation of a job was begun."""
        events = await self.events("controller")
        return [e.cause for e in events if isinstance(e, GenerationBegun) and e.job_id == job_id]

    def appended(self, service: str, event: str) -> asyncio.Future[None]:
        """Return a future that is done when a service stores an event of this type."""
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(stored: Sequence[StoredEvent]) -> None:
            if not found.done() and any(one.type.startswith(f"{event}.") for one in stored):
                found.set_result(None)

        self.world.backing.databases[service].on_append.append(look)
        return found

    async def events(self, service: str) -> list[Any]:
        """Return everything that a service has decided, oldest first."""
        store = self.world.backing.databases[service].store
        return [
            codec.decode(event.type, event.data)
            for event in await store.read_all(after_position=0, limit=1_000_000)
            for codec in CODECS[service]
            if codec.knows(event.type)
        ]


def spec_of(
    number: int = 0, *, steps: int = STEPS, object_every_steps: int = 10, **checkpoint: Any
) -> JobSpec:
    """Return the spec of a simulated job: eight ranks for an even number, four for an odd one."""
    return parse_spec(
        {
            "name": f"job {number}",
            "entry": "model:main",
            "layout": {"pp": 2, "tp": 2, "dp_shard": 1 if number % 2 else 2},
            "steps": steps,
            "checkpoint": {"object_every_steps": object_every_steps, **checkpoint},
            "recovery": {"restarts_per_hour_max": 1_000},
            "numerics": {"window_steps_min": 8},  # a run of 60 steps is short
        }
    )
