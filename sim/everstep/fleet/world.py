"""The simulated ground: hosts, ranks and time, under the services' decisions.

Time advances from event to event on the virtual loop. Whatever goes wrong comes in through
``goes_down``, ``rank_fails``, ``goes_silent`` and ``paces`` (``mishaps`` calls them); whatever the
services decide comes back through the ``Ground`` that the controller's ``Outside`` stands on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TextIO

from everstep.checkpoint_registry import commands as registry
from everstep.checkpoint_registry.events import RestoreLaidOut
from everstep.controller import events as jobs
from everstep.controller.state import Job
from everstep.core.ports import StoredEvent
from everstep.fleet.copies import PORT, Copies
from everstep.fleet.hosts import Machine, machines, repair_ms
from everstep.fleet.ledger import Ledger
from everstep.fleet.observer import Observer
from everstep.fleet.outside import SimulatedOutside, facts
from everstep.fleet.pacing import Pacing, cadence_under
from everstep.fleet.run import Run, State
from everstep.fleet.scenario import Scenario
from everstep.fleet.services import Services
from everstep.fleet.watching import Watching
from everstep.host_inventory import commands as inventory
from everstep.host_inventory import events as hosts
from everstep.monitor import events as incidents
from everstep.monitor.commands import CloseHostIncident
from everstep.monitor.ledger import Cause
from everstep.sim.loop import EPOCH_MS, VirtualClock
from everstep.sim.seeds import SeededIds, Seeds

# From the start commands to the first new step, of ten hosts that were lost for real
# (benchmarks/results/recovery.json, ``ours``, 2026-11-30: ``new_step_s`` less ``start_answered``),
# over their mean of 1.683 s.
RESTART_SHAPE: Final = (0.893, 0.898, 0.903, 0.948, 0.982, 0.982, 1.024, 1.068, 1.070, 1.232)
SICK_AFTER_MS: Final = 20_000  # chosen: a bad chip shows itself within some steps
TAKEN_OUT_AFTER_MS: Final = 10_000  # a cordoned host is left alone until its ranks are gone

Then = Callable[..., None]


class World:
    """One job on one fleet."""

    def __init__(self, scenario: Scenario, seed: int, trace: TextIO | None = None) -> None:
        self.scenario = scenario
        self.seeds = Seeds(seed)
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.machines = {m.host_id: m for m in machines(scenario, self.seeds)}
        self.on_return: Callable[[Machine], None] = lambda _: None
        self.out_for_ms: dict[str, int] = {}  # cordoned on purpose: how long they stay away
        self.failure: BaseException | None = None
        self.ended = asyncio.Event()
        self.trains_again = asyncio.Event()
        self.out_max = 0
        self._away: set[str] = set()
        self._silent: set[str] = set()
        self._short = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = asyncio.Event()
        self._control.set()
        cadence = scenario.cadence()
        self.cadence = cadence
        self.copies = Copies(cadence, scenario.checkpoint.keep_last)
        self.ledger = Ledger(cadence)
        self.run = Run(cadence, self.copies, self.ledger)
        self.observer = Observer(self.ledger, self.copies, self.now_ms, trace)
        ids = SeededIds(self.seeds.of("ids"))
        self.services = Services(self.clock, ids, self._see)
        self.services.drive(
            SimulatedOutside(
                self.services,
                self,
                self.clock,
                scenario.restart,
                self.machines,
            )
        )
        self.watching = Watching(
            self.services,
            self.clock,
            ids,
            unreachable=self.unreachable,
            probe_s=scenario.detection.probe_s,
            control_is_there=self.control_is_there,
        )
        self.pacing = Pacing(self)
        self._restarts = self.seeds.of("restarts")

    # -- time and tasks

    def now_ms(self) -> int:
        """Return milliseconds since the world began."""
        return self.clock.now_ms() - EPOCH_MS

    def after(self, delay_ms: int, then: Then, *args: Any) -> asyncio.TimerHandle:
        """Call ``then`` later; what it raises ends the world."""
        return self.loop.call_at((self.now_ms() + delay_ms) / 1e3, self._call, then, args)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside; what it raises ends the world."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def fail(self, error: BaseException) -> None:
        """End the world with what went wrong first."""
        self.failure = self.failure or error
        self.ended.set()
        self.trains_again.set()

    def _call(self, then: Then, args: tuple[Any, ...]) -> None:
        try:
            then(*args)
        except Exception as error:  # noqa: BLE001 - the loop would only log it, and figures be wrong
            self.fail(error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # -- what goes wrong

    def serves(self, machine: Machine) -> bool:
        """Say whether the host's ranks run now."""
        return self.run.state is not State.IDLE and machine.host_id in self.run.seats

    def goes_down(self, machine: Machine, down_ms: int) -> None:
        """A host is gone, with all that lies in its memory, and comes back later."""
        if not machine.up:
            return
        self.observer.counts["host_failures"] += 1
        self._leaves(machine, down_ms)
        delay_ms = self._signs_after_ms(self.scenario.detection.host_s)
        if self.serves(machine):
            self.breaks(delay_ms, rank=self.run.seats[machine.host_id].ranks[0])
        else:
            self.after(delay_ms, self._idle_signs, machine, machine.epoch, delay_ms)

    def rank_fails(self, machine: Machine) -> None:
        """A process of the host dies; the host stays."""
        if not machine.up or not self.serves(machine):
            return
        self.observer.counts["rank_failures"] += 1
        rank = self.run.seats[machine.host_id].ranks[machine.random.randrange(8) % 8]
        self.run.stands_still(self.now_ms(), Cause.DETECTION)
        self.spawn(self._rank_signs(machine.host_id, rank, self.run.generation))

    def goes_silent(self, machine: Machine, silent_ms: int) -> None:
        """Nothing reaches a host for a while, and its peers' collectives fail: a false alarm."""
        if not machine.up or not self.serves(machine):
            return
        self.observer.counts["false_alarms"] += 1
        self._silent.add(machine.host_id)
        self.out_for_ms[machine.host_id] = round(
            self.scenario.detection.false_alarm_checked_h * 3_600_000
        )
        self.after(silent_ms, self._speaks, machine)
        delay_ms = self._signs_after_ms(self.scenario.detection.host_s)
        self.breaks(delay_ms, rank=self.run.seats[machine.host_id].ranks[0])

    def breaks(self, delay_ms: int, *, rank: int) -> None:
        """The running generation makes no steps any more, and the monitor learns it later."""
        generation, failed_ms = self.run.generation, self.clock.now_ms()
        self.run.stands_still(self.now_ms(), Cause.DETECTION)
        self.spawn(self._inquire(delay_ms, generation, rank, failed_ms))

    def control_away(self, away_ms: int) -> None:
        """Controller, monitor and bus are away; training goes on."""
        self.observer.note(f"control plane away for {away_ms} ms")
        self._control.clear()
        self.after(away_ms, self._control.set)

    def paces(self) -> None:
        """The run is as fast as the slowest of its hosts."""
        self.run.paced(self.now_ms(), self.slowest())

    def slowest(self) -> float:
        """Return by how much the slowest host of the run stretches a step."""
        if not self.scenario.numerics.stragglers_per_day:
            return 1.0  # none ever is
        slow = (
            m.slow for m in self.machines.values() if m.slow > 1 and m.host_id in self.run.seats
        )
        return max(slow, default=1.0)

    # -- Ground: what the controller's outside stands on

    def unreachable(self) -> frozenset[str]:
        """Name the hosts that do not answer now."""
        return frozenset(self._away | self._silent)

    def fenced(self, hosts: Sequence[str], generation: int) -> None:
        """Ranks of an older generation end: one host's end ends the steps of all."""
        if hosts and self.run.state is not State.IDLE and self.run.generation < generation:
            cause = Cause.WAITING_FOR_HOSTS if self._short else Cause.RESTART
            self.run.stands_still(self.now_ms(), cause)

    def held(self, host_ids: Sequence[str]) -> tuple[registry.HostHoldings, ...]:
        """Tell what lies in the memory of fenced hosts."""
        return self.copies.held(host_ids)

    def complete(self) -> tuple[registry.CompleteFacts, ...]:
        """Tell the complete checkpoints."""
        return tuple(
            [facts(one.generation, one.step, one.world_size) for one in self.copies.stored]
        )

    def started(self, job: Job, plan: RestoreLaidOut) -> None:
        """Every host has taken its start command: the ranks come up."""
        assert job.placement is not None
        try:
            assert plan.generation == job.generation, f"plan of generation {plan.generation}"
            self.run.paced_by(
                cadence_under(self.scenario, job.interval.schedule, job.placement.layout)
            )
            self.run.comes_up(self.now_ms(), job.generation, job.placement, plan.step)
        except AssertionError as error:
            self.fail(error)
            raise
        restart = self.scenario.restart
        shape = self._restarts.choice(RESTART_SHAPE) if restart.spread else 1.0
        load_s = self.scenario.upload_s * self.observer.stored_ranks / plan.world_size
        self.after(round((restart.ranks_s * shape + load_s) * 1e3), self._trains, job.generation)

    def stored_ranks(self) -> int:
        """Return how many ranks the newest plan takes from the object store."""
        return self.observer.stored_ranks

    async def control_is_there(self) -> None:
        """Return when the control plane is not away."""
        await self._control.wait()

    # -- what follows

    def _trains(self, generation: int) -> None:
        if self.run.state is not State.COMING_UP or self.run.generation != generation:
            return
        slow = self.slowest()
        self.run.trains(self.now_ms(), slow)
        self.observer.note(f"generation {generation} trains from step {self.run.first}")
        self.trains_again.set()
        self.after(round(self.run.cadence.step_ms * slow), self._first_step, generation)
        for machine in self.machines.values() if self.scenario.failures.sick_share else ():
            if machine.sick and machine.host_id in self.run.seats:
                self.after(SICK_AFTER_MS, self.rank_fails, machine)
                break

    def _first_step(self, generation: int) -> None:
        if self.run.state is State.TRAINING and self.run.generation == generation:
            self.spawn(self.watching.progressed(generation, self.run.first + 1))

    def _signs_after_ms(self, detection_s: float) -> int:
        """Return when the first sign comes, so that the verdict comes after ``detection_s``."""
        return round(max(detection_s - self.scenario.detection.probe_s, 0) * 1e3)

    async def _inquire(self, delay_ms: int, generation: int, rank: int, failed_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1e3)
        await self.watching.inquire(
            generation, echo_rank=rank, failed_ms=failed_ms, step=self.run.last_step
        )

    async def _rank_signs(self, host_id: str, rank: int, generation: int) -> None:
        failed_ms = self.clock.now_ms()
        await asyncio.sleep(self._signs_after_ms(self.scenario.detection.rank_s) / 1e3)
        await self.control_is_there()
        await self.watching.rank_died(rank, host_id, generation, self.run.last_step)
        await self.watching.inquire(
            generation, echo_rank=None, failed_ms=failed_ms, step=self.run.last_step
        )

    def _idle_signs(self, machine: Machine, epoch: int, silent_ms: int) -> None:
        if not machine.up and machine.epoch == epoch and not self.serves(machine):
            self.spawn(self._idle_lost(machine, silent_ms))

    async def _idle_lost(self, machine: Machine, silent_ms: int) -> None:
        busy = {host.host_id for host in (await self.services.watch()).hosts}
        known = (await self.services.hosts()).hosts[machine.host_id]
        if machine.host_id not in busy and known.cordon is None:
            await self.watching.idle_host_is_gone(machine.host_id, silent_ms)

    def _leaves(self, machine: Machine, down_ms: int) -> None:
        machine.up = machine.sick = False
        machine.slow = 1.0
        self._away.add(machine.host_id)
        self.out_max = max(self.out_max, len(self._away))
        self.observer.note(f"{machine.host_id} is out for {down_ms} ms")
        self.copies.wiped(machine.host_id, self.run.generation + 1)
        self.after(down_ms, self._returns, machine)

    def _returns(self, machine: Machine) -> None:
        machine.up = True
        machine.epoch += 1
        self._away.discard(machine.host_id)
        self.spawn(self._rejoins(machine))
        self.on_return(machine)

    async def _rejoins(self, machine: Machine) -> None:
        await self.control_is_there()
        now_ms = self.clock.now_ms()
        await self.services.fleet.handle(join(machine, now_ms))
        await self.services.fleet.handle(
            inventory.UncordonHost(host_id=machine.host_id, at_ms=now_ms)
        )
        await self.services.watches.handle(CloseHostIncident(host_id=machine.host_id, at_ms=now_ms))

    def _speaks(self, machine: Machine) -> None:
        self._silent.discard(machine.host_id)

    def _taken_out(self, machine: Machine, epoch: int) -> None:
        """A cordoned host that still runs is looked after, and comes back."""
        if machine.up and machine.epoch == epoch:
            away_ms = self.out_for_ms.pop(machine.host_id, None)
            self._leaves(machine, away_ms or repair_ms(machine.random, self.scenario))

    # -- what the services have decided

    def _see(self, stored: StoredEvent) -> None:
        try:
            self.observer.see(stored)
            self._follow(stored.data["event"])
        except AssertionError as error:
            self.fail(error)
            raise

    def _follow(self, event: Any) -> None:
        now_ms, run = self.now_ms(), self.run
        match event:
            case jobs.GenerationBegun():
                self._short = False
                if run.cause is Cause.DETECTION and event.cause != "recovery":
                    run.switch(now_ms, Cause.RESTART)
            case jobs.HostsShort():
                self._short = True
                run.switch(now_ms, Cause.WAITING_FOR_HOSTS)
            case jobs.PlacementDecided():
                self._short = False
                if run.cause is Cause.WAITING_FOR_HOSTS:
                    run.switch(now_ms, Cause.RESTART)
            case incidents.IncidentOpened():
                if event.job_id and run.cause is Cause.DETECTION:
                    run.switch(now_ms, Cause.RESTART)
            case hosts.HostCordoned():
                machine = self.machines[event.host_id]
                self.after(TAKEN_OUT_AFTER_MS, self._taken_out, machine, machine.epoch)
            case jobs.JobRunning() if self.scenario.checkpoint.interval == "auto":
                self.pacing.runs(event)
            case jobs.JobFailed():
                self.fail(AssertionError(f"the job failed: {event.why}: {event.detail}"))
            case _:
                pass


def join(machine: Machine, at_ms: int) -> inventory.JoinHost:
    """Return what a host's agent says when it starts."""
    return inventory.JoinHost(
        host_id=machine.host_id,
        pod=machine.pod,
        power=machine.pod,
        chips=8,
        address=machine.host_id,
        peer_port=PORT,
        agent_epoch=f"{machine.host_id}-{machine.epoch}",
        at_ms=at_ms,
    )
