"""Runs one seed: a fleet, a job or two, the seed's faults, repair, and the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from everstep.sim import loop
from everstep.sim.doubts import KINDS as DOUBTS
from everstep.sim.doubts import draw_doubts
from everstep.sim.faults import KINDS, Fault, draw_conditions, draw_faults, draw_skew_ms
from everstep.sim.flips import KINDS as FLIPS
from everstep.sim.flips import draw_flips
from everstep.sim.network import Conditions
from everstep.sim.partitions import KINDS as PARTITIONS
from everstep.sim.partitions import draw_partitions
from everstep.sim.seeds import Seeds
from everstep.sim.stage import Stage, spec_of
from everstep.sim.troubles import KINDS as TROUBLES
from everstep.sim.troubles import draw_troubles
from everstep.sim.world import Fleet, World

TRAINING_S: Final = 120.0  # faults strike within this time of the launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run consists of; from a seed, or cut down by ``shrink``."""

    seed: int
    fleet: Fleet
    conditions: Conditions
    clocks_differ: bool
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
        clocks_differ=random.random() < 0.3,
        faults=(
            *draw_faults(random, until_s=TRAINING_S),
            *draw_doubts(Seeds(seed).of("doubts"), until_s=TRAINING_S),
            *draw_troubles(Seeds(seed).of("troubles"), until_s=TRAINING_S),
            *draw_partitions(Seeds(seed).of("partitions"), until_s=TRAINING_S),
            *draw_flips(Seeds(seed).of("flips"), until_s=TRAINING_S),
        ),
        jobs=1 if random.random() < 0.7 else 2,
    )


def run_plan(plan: Plan) -> Outcome:
    """Run a plan in a world of its own."""
    return loop.run(_run(plan))


def run_seed(seed: int) -> Outcome:
    """Run a seed."""
    return run_plan(plan_of(seed))


async def _run(plan: Plan) -> Outcome:
    stage = Stage(plan.seed, fleet=plan.fleet, conditions=plan.conditions)
    world = stage.world
    if plan.clocks_differ:
        clocks = world.seeds.of("clocks")
        for host in world.hosts.values():
            host.skew_ms = draw_skew_ms(clocks)
    await stage.up()
    for number in range(plan.jobs):
        world.launched.append(f"job-{number}")
        world.physics(world.launch(f"job-{number}", spec_of(number)))
    strikes = [asyncio.ensure_future(_strike(world, fault)) for fault in plan.faults]
    if strikes:
        await asyncio.wait(strikes)
    failed = [f"fault failed: {task.exception()!r}" for task in strikes if task.exception()]
    await stage.finish(plan.jobs)
    return Outcome(
        plan=plan,
        wrong=(*failed, *await stage.wrong()),
        digest=world.trace.digest,
        trace=tuple(world.trace.lines),
        virtual_s=world.now_ms / 1e3,
    )


async def _strike(world: World, fault: Fault) -> None:
    await asyncio.sleep(fault.at_s)
    strikes = KINDS | DOUBTS | TROUBLES | PARTITIONS | FLIPS
    await strikes[fault.kind](world, Random(fault.seed))  # noqa: S311  # no secrets
