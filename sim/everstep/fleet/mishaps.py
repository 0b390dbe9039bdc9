"""What goes wrong in a world, and when: every source of trouble draws from its own generator.

Failures of hosts and processes, power and switches, false alarms and an absent control plane are
answered by the services' own decisions. Stragglers, loss spikes and silent corruption show in the
numbers of every step, which nobody makes here (``everstep.sim`` does): an operator answers them
with the commands that a person has (cordon, restart from a step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from everstep.controller.commands import RestartJob
from everstep.controller.state import Phase
from everstep.core.time import HOUR_MS
from everstep.fleet import hosts as draws
from everstep.fleet.copies import Stored
from everstep.fleet.hosts import Machine, Outage
from everstep.fleet.run import State
from everstep.fleet.services import JOB_ID
from everstep.fleet.world import World
from everstep.host_inventory.commands import CordonHost
from everstep.host_inventory.state import HostState

HOURS_A_DAY: Final = 24.0
HOURS_A_YEAR: Final = 8_766.0
SILENT_MS: Final = 20_000  # chosen: longer than detection, shorter than anyone's repair
ASK_AGAIN_MS: Final = 60_000  # an operator waits for a recovery to end


class Mishaps:
    """Lets things go wrong in a world until ``over``."""

    def __init__(self, world: World) -> None:
        self.over = False
        self._world = world
        self._scenario = world.scenario
        self._machines = list(world.machines.values())
        self._random = world.seeds.of("operator")
        world.on_return = self._back

    def begin(self) -> None:
        """Draw the first mishap of every kind."""
        scenario = self._scenario
        if scenario.failures.kind == "trace":
            outages = draws.recorded(scenario, self._world.seeds.of("trace"))
            self._next_outage(outages)
        else:
            for machine in self._machines:
                first_ms = draws.first_failure_ms(machine, scenario)
                self._world.after(first_ms, self._strikes, machine, machine.epoch)
        pods, switches = self._groups(by_pod=True), self._groups(by_pod=False)
        failures, numerics, away = scenario.failures, scenario.numerics, scenario.away
        for name, per_hour, strike in (
            ("pods", len(pods) * failures.pod_power_per_year / HOURS_A_YEAR, self._group(pods)),
            (
                "switches",
                len(switches) * failures.switch_per_year / HOURS_A_YEAR,
                self._group(switches),
            ),
            (
                "false alarms",
                scenario.detection.false_alarms_per_day / HOURS_A_DAY,
                self._false_alarm,
            ),
            ("stragglers", numerics.stragglers_per_day / HOURS_A_DAY, self._straggler),
            ("spikes", numerics.spikes_per_day / HOURS_A_DAY, self._spike),
            ("corruption", numerics.corruptions_per_day / HOURS_A_DAY, self._corruption),
            ("control", away.control_per_day / HOURS_A_DAY, self._control),
        ):
            if per_hour > 0:
                self._repeat(self._world.seeds.of(name), per_hour, strike)
        if away.maintenance_every_days:
            every_ms = round(away.maintenance_every_days * HOURS_A_DAY * HOUR_MS)
            self._world.after(every_ms, self._maintenance, every_ms)

    # -- hosts

    def _strikes(self, machine: Machine, epoch: int) -> None:
        """The host's own failure, if it has not been away since it was drawn."""
        if self.over or not machine.up or machine.epoch != epoch:
            return
        failures = self._scenario.failures
        drawn = machine.random.random()
        if drawn >= failures.rank_share + failures.sick_share:
            self._world.goes_down(machine, draws.repair_ms(machine.random, self._scenario))
            return
        machine.sick = machine.sick or drawn >= failures.rank_share
        self._world.rank_fails(machine)
        again_ms = draws.failure_after_ms(machine, self._scenario)
        self._world.after(again_ms, self._strikes, machine, epoch)

    def _back(self, machine: Machine) -> None:
        if self._scenario.failures.kind != "trace":
            next_ms = draws.failure_after_ms(machine, self._scenario, repaired=True)
            self._world.after(next_ms, self._strikes, machine, machine.epoch)

    def _next_outage(self, outages: Iterator[Outage]) -> None:
        outage = next(outages)
        delay_ms = max(outage.at_ms - self._world.now_ms(), 0)
        self._world.after(delay_ms, self._recorded, outage, outages)

    def _recorded(self, outage: Outage, outages: Iterator[Outage]) -> None:
        if not self.over:
            self._world.goes_down(self._machines[outage.index], outage.down_ms)
            self._next_outage(outages)

    def _groups(self, *, by_pod: bool) -> list[list[Machine]]:
        groups: dict[str, list[Machine]] = {}
        for machine in self._machines:
            groups.setdefault(machine.pod if by_pod else str(machine.switch), []).append(machine)
        return list(groups.values())

    def _group(self, groups: list[list[Machine]]) -> Callable[[Random], None]:
        def strike(random: Random) -> None:
            self._world.observer.counts["group_failures"] += 1
            mean_ms = self._scenario.failures.group_down_h * HOUR_MS
            down_ms = max(round(random.expovariate(1 / mean_ms)), 1)
            for machine in random.choice(groups):
                self._world.goes_down(machine, down_ms)

        return strike

    # -- what only seems to go wrong, or concerns nobody's host

    def _false_alarm(self, random: Random) -> None:
        self._world.goes_silent(random.choice(self._machines), SILENT_MS)

    def _control(self, random: Random) -> None:
        mean_ms = self._scenario.away.control_min * 60_000
        self._world.control_away(max(round(random.expovariate(1 / mean_ms)), 1))

    def _maintenance(self, every_ms: int) -> None:
        if self.over:
            return
        self._world.after(every_ms, self._maintenance, every_ms)
        away = self._scenario.away
        seated = [m for m in self._machines if self._world.serves(m)]
        chosen = self._random.sample(seated, min(away.maintenance_hosts, len(seated)))
        for machine in chosen:
            self._world.out_for_ms[machine.host_id] = round(away.maintenance_h * HOUR_MS)
        self._world.observer.counts["maintenance_windows"] += 1
        self._world.spawn(self._replace(chosen, "maintenance"))

    # -- numerics

    def _straggler(self, random: Random) -> None:
        machine = random.choice(self._machines)
        if not machine.up or not self._world.serves(machine) or machine.slow > 1:
            return
        self._world.observer.counts["stragglers"] += 1
        machine.slow = self._scenario.numerics.straggler_factor
        self._world.paces()
        found_ms = round(self._scenario.numerics.straggler_found_s * 1e3)
        self._world.after(found_ms, self._straggler_found, machine, machine.epoch)

    def _straggler_found(self, machine: Machine, epoch: int) -> None:
        heals_ms = round(self._scenario.numerics.straggler_heals_h * HOUR_MS)
        self._world.after(heals_ms, self._heals, machine, epoch)
        if machine.epoch == epoch and self._world.serves(machine):
            self._world.spawn(self._replace([machine], "straggler"))

    def _heals(self, machine: Machine, epoch: int) -> None:
        if machine.epoch == epoch and machine.slow > 1:
            machine.slow = 1.0
            self._world.paces()

    def _spike(self, _: Random) -> None:
        world = self._world
        if world.run.state is not State.TRAINING:
            return
        world.observer.counts["spikes"] += 1
        before = world.run.step(world.now_ms()) - self._scenario.numerics.spike_back_steps
        world.spawn(self._roll_back(before, None))

    def _corruption(self, random: Random) -> None:
        world = self._world
        machine = random.choice(self._machines)
        if world.run.state is not State.TRAINING or not world.serves(machine):
            return
        world.observer.counts["corruptions"] += 1
        step = world.run.step(world.now_ms())
        lag_ms = max(
            round(random.expovariate(1) * self._scenario.numerics.corruption_found_h * HOUR_MS), 1
        )
        world.after(lag_ms, self._corruption_found, step, machine, machine.epoch)

    def _corruption_found(self, step: int, machine: Machine, epoch: int) -> None:
        culprit = machine if machine.epoch == epoch and self._world.serves(machine) else None
        self._world.spawn(self._roll_back(step, culprit))

    # -- the operator

    async def _replace(self, machines: list[Machine], reason: str) -> None:
        """Take hosts out of a running job, if spares can take over."""
        if not await self._may_act():
            self._world.after(ASK_AGAIN_MS, self._replace_again, machines, reason)
            return
        serving = [machine for machine in machines if self._world.serves(machine)]
        fleet = await self._world.services.hosts()
        spares = sum(host.state is HostState.SPARE for host in fleet.hosts.values())
        if serving and spares >= len(serving):
            await self._cordon(serving, reason)
            await self._restart(-1)
            return
        for machine in machines:
            self._world.out_for_ms.pop(machine.host_id, None)

    def _replace_again(self, machines: list[Machine], reason: str) -> None:
        if not self.over:
            self._world.spawn(self._replace(machines, reason))

    async def _roll_back(self, before: int, culprit: Machine | None) -> None:
        """Restart from the newest checkpoint up to a step, without the culprit."""
        world = self._world
        if not await self._may_act():
            world.after(ASK_AGAIN_MS, self._roll_back_again, before, culprit)
            return
        if world.run.step(world.now_ms()) <= before:
            return  # a recovery has gone back further meanwhile
        there = [stored.step for stored in self._stored() if stored.step <= before]
        if culprit is not None and world.serves(culprit):
            await self._cordon([culprit], "silent_corruption")
        if there:
            world.observer.counts["roll_backs"] += 1
            await self._restart(max(there))

    def _roll_back_again(self, before: int, culprit: Machine | None) -> None:
        if not self.over:
            self._world.spawn(self._roll_back(before, culprit))

    def _stored(self) -> list[Stored]:
        run, now_ms = self._world.run, self._world.now_ms()
        return self._world.copies.with_current(
            generation=run.generation,
            first=run.first,
            trained_ms=run.trained_ms(now_ms),
            at_ms=now_ms,
        )

    async def _may_act(self) -> bool:
        await self._world.control_is_there()
        running = (await self._world.services.job()).phase is Phase.RUNNING
        return running and self._world.run.state is State.TRAINING

    async def _cordon(self, machines: list[Machine], reason: str) -> None:
        for machine in machines:
            await self._world.services.fleet.handle(
                CordonHost(
                    host_id=machine.host_id,
                    reason=reason,
                    incident_id="",
                    at_ms=self._world.clock.now_ms(),
                )
            )

    async def _restart(self, step: int) -> None:
        await self._world.services.runner.apply(
            RestartJob(job_id=JOB_ID, from_step=step, at_ms=self._world.clock.now_ms())
        )

    def _repeat(self, random: Random, per_hour: float, strike: Callable[[Random], None]) -> None:
        def happens() -> None:
            if not self.over:
                strike(random)
                self._world.after(draws.poisson_ms(random, per_hour), happens)

        self._world.after(draws.poisson_ms(random, per_hour), happens)
