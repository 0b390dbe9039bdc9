"""Runs one seed: a fleet, a job or two, the seed's faults, repair, and the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from everstep.controller.state import TERMINAL
from everstep.core.errors import EverstepError
from everstep.core.spec import JobSpec, parse_spec
from everstep.service.commands import send_command
from everstep.sim import loop
from everstep.sim.faults import KINDS, Fault, draw_conditions, draw_faults
from everstep.sim.invariants import Invariants
from everstep.sim.network import Conditions
from everstep.sim.seeds import Seeds
from everstep.sim.world import Fleet, World
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.common_pb2 import CommandReply

SETTLE_S: Final = 7.0  # the monitor judges nobody in its first seconds
TRAINING_S: Final = 120.0  # faults strike within this time of the launch
HEAL_S: Final = 900.0  # by then a repaired world must have finished its jobs
STEPS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run consists of; from a seed, or cut down by ``shrink``."""

    seed: int
    fleet: Fleet
    conditions: Conditions
    faults: tuple[Fault, ...]
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it; ``wrong`` is empty when all is well."""

    plan: Plan
    wrong: tuple[str, ...]
    digest: str
    trace: tuple[str, ...]
    virtual_s: float


def plan_of(seed: int) -> Plan:
    """Draw a seed's plan."""
    random = Seeds(seed).of("plan")
    hosts = random.choice((2, 3, 3, 4))
    return Plan(
        seed=seed,
        fleet=Fleet(pods=2, hosts_per_pod=hosts),
        conditions=draw_conditions(random),
        faults=tuple(draw_faults(random, until_s=TRAINING_S)),
        jobs=1 if random.random() < 0.7 else 2,
    )


def run_plan(plan: Plan) -> Outcome:
    """Run a plan in a world of its own."""
    return loop.run(_run(plan))


async def _run(plan: Plan) -> Outcome:
    world = World(plan.seed, fleet=plan.fleet, conditions=plan.conditions)
    invariants = Invariants(world)
    for service in world.services.values():
        service.start()
    for host_id in world.hosts:
        world.power_on(host_id)
    await asyncio.sleep(SETTLE_S)
    for number in range(plan.jobs):
        world.launched.append(f"job-{number}")
        world.physics(world.launch(f"job-{number}", spec_of(number)))
    strikes = [asyncio.ensure_future(_strike(world, fault)) for fault in plan.faults]
    if strikes:
        await asyncio.wait(strikes)
    wrong = [f"fault failed: {task.exception()!r}" for task in strikes if task.exception()]
    await _heal(world)
    deadline_s = asyncio.get_running_loop().time() + HEAL_S
    while asyncio.get_running_loop().time() < deadline_s and not _ended(invariants, plan):
        await _clear(world, invariants)
        await asyncio.sleep(5.0)
    await asyncio.sleep(10.0)  # the last events arrive
    return Outcome(
        plan=plan,
        wrong=(*wrong, *invariants.at_end()),
        digest=world.trace.digest,
        trace=tuple(world.trace.lines),
        virtual_s=world.now_ms / 1e3,
    )


def spec_of(number: int) -> JobSpec:
    """Return the spec of a run's jobs."""
    return parse_spec(
        {
            "name": f"job {number}",
            "entry": "model:main",
            "layout": {"pp": 2, "dp_shard": 2, "tp": 2} if number == 0 else {"pp": 2, "tp": 2},
            "steps": STEPS,
            "checkpoint": {"object_every_steps": 10},
            "recovery": {"restarts_per_hour_max": 1_000},
        }
    )


async def _strike(world: World, fault: Fault) -> None:
    await asyncio.sleep(fault.at_s)
    await KINDS[fault.kind](world, Random(fault.seed))  # noqa: S311  # no secrets


async def _heal(world: World) -> None:
    """Bring back whatever a fault has left away."""
    world.note("world", "all faults are over")
    for host_id, host in world.hosts.items():
        if not host.on:
            world.power_on(host_id)
        elif host.agent is None:
            world.start_agent(host_id)


async def _clear(world: World, invariants: Invariants) -> None:
    """A person clears every cordoned host, as long as jobs may need it."""
    for host_id, host in sorted(invariants.fleet.hosts.items()):
        if host.cordon is None:
            continue
        command = hosts_pb2.UncordonHost(host_id=host_id, at_ms=world.clock.now_ms())
        try:
            await send_command(world.person, "host_inventory", command, CommandReply, timeout_s=5.0)
        except EverstepError:
            continue


def _ended(invariants: Invariants, plan: Plan) -> bool:
    jobs = invariants.jobs.values()
    return len(jobs) == plan.jobs and all(job.phase in TERMINAL for job in jobs)


def run_seeds(seeds: Sequence[int]) -> list[Outcome]:
    """Run several."""
    return [run_plan(plan_of(seed)) for seed in seeds]
