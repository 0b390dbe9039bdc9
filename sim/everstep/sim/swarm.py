"""Runs one seed: a fleet, a job or two, the seed's faults, repair, and the verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from everstep.core.time import SECOND_MS
from everstep.host_inventory.care import Care
from everstep.sim import loop
from everstep.sim.doubts import KINDS as DOUBTS
from everstep.sim.doubts import draw_doubts
from everstep.sim.faults import (
    KINDS,
    LOSSES,
    Fault,
    Strike,
    draw_conditions,
    draw_faults,
    draw_losses,
    draw_skew_ms,
)
from everstep.sim.flips import KINDS as FLIPS
from everstep.sim.flips import draw_flips
from everstep.sim.jobs import SMALL_BUDGET, JobPlan, draw_audits, draw_jobs
from everstep.sim.moments import at_moments
from everstep.sim.network import Conditions
from everstep.sim.partitions import KINDS as PARTITIONS
from everstep.sim.partitions import draw_partitions
from everstep.sim.seeds import Seeds
from everstep.sim.services import CARE
from everstep.sim.silences import KINDS as SILENCES
from everstep.sim.silences import draw_silences
from everstep.sim.stage import Stage
from everstep.sim.troubles import KINDS as TROUBLES
from everstep.sim.troubles import draw_troubles
from everstep.sim.upkeep import KINDS as UPKEEP
from everstep.sim.upkeep import draw_upkeep
from everstep.sim.wishes import KINDS as WISHES
from everstep.sim.wishes import draw_wishes
from everstep.sim.world import Fleet, World

TRAINING_S: Final = 120.0  # faults strike within this time of the launch
LOSSES_S: Final = 60.0  # there must be time to grow back
CHECK_EVERY_S: Final = 20  # of idle spares, where hosts also come back soon
STRIKES: Final[dict[str, Strike]] = (
    KINDS | LOSSES | DOUBTS | TROUBLES | PARTITIONS | FLIPS | UPKEEP | SILENCES | WISHES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run consists of; from a seed, or cut down by ``shrink``.

    Hosts that failed stay out for ``hold_s``, twice as long each time, and come back by themselves;
    0: for as long as the inventory's own limit says, which is longer than the run.
    """

    seed: int
    fleet: Fleet
    conditions: Conditions
    clocks_differ: bool
    faults: tuple[Fault, ...]
    jobs: tuple[JobPlan, ...]
    hold_s: int = 0


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
    seeds = Seeds(seed)
    random = seeds.of("plan")
    hosts = random.choice((2, 3, 3, 4))
    conditions, clocks_differ = draw_conditions(random), random.random() < 0.3
    faults = draw_faults(random, until_s=TRAINING_S)
    count = 1 if random.random() < 0.7 else 2
    jobs = draw_jobs(seeds.of("jobs"), count, 2 * hosts)
    jobs = draw_audits(seeds.of("audits"), jobs)
    losses = []
    if any(job.elastic for job in jobs):
        losses = draw_losses(seeds.of("losses"), until_s=LOSSES_S)
        hosts = seeds.of("spares").choice((2, 2, 2, hosts))  # few: else nobody ever has to shrink
    faults = [
        *faults,
        *draw_doubts(seeds.of("doubts"), until_s=TRAINING_S),
        *draw_troubles(seeds.of("troubles"), until_s=TRAINING_S),
        *draw_partitions(seeds.of("partitions"), until_s=TRAINING_S),
        *draw_flips(seeds.of("flips"), until_s=TRAINING_S),
        *draw_upkeep(seeds.of("upkeep"), until_s=TRAINING_S),
        *losses,
        *draw_silences(seeds.of("silences"), until_s=TRAINING_S),
        *draw_wishes(seeds.of("wishes"), until_s=TRAINING_S),
    ]
    return Plan(
        seed=seed,
        fleet=Fleet(pods=2, hosts_per_pod=hosts),
        conditions=conditions,
        clocks_differ=clocks_differ,
        faults=at_moments(seeds.of("moments"), faults),
        jobs=jobs,
        hold_s=seeds.of("care").choice((0, 10, 10, 30)),
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
    if plan.hold_s:
        world.backing.care = Care(
            burn_in_s=CARE.burn_in_s,
            hold_ms=plan.hold_s * SECOND_MS,
            check_every_ms=CHECK_EVERY_S * SECOND_MS,
        )
        stage.waits_for_returns = True
    stage.reopens = any(job.budget == SMALL_BUDGET for job in plan.jobs)
    if plan.clocks_differ:
        clocks = world.seeds.of("clocks")
        for host in world.hosts.values():
            host.skew_ms = draw_skew_ms(clocks)
    await stage.up()
    for job in plan.jobs:
        world.launched.append(job.job_id)
        world.physics(_launch(world, job))
    strikes = [asyncio.ensure_future(_strike(world, fault)) for fault in plan.faults]
    if strikes:
        await asyncio.wait(strikes)
    failed = [f"fault failed: {task.exception()!r}" for task in strikes if task.exception()]
    await stage.finish(len(plan.jobs))
    left_over = await stage.left_over()
    return Outcome(
        plan=plan,
        wrong=(*failed, *left_over, *await stage.wrong()),
        digest=world.trace.digest,
        trace=tuple(world.trace.lines),
        virtual_s=world.now_ms / 1e3,
    )


async def _launch(world: World, job: JobPlan) -> None:
    await asyncio.sleep(job.at_s)
    await world.launch(job.job_id, job.spec())


async def _strike(world: World, fault: Fault) -> None:
    await asyncio.sleep(fault.at_s)
    if fault.moment:
        if not await world.moments.wait(fault.moment):
            return
        await asyncio.sleep(fault.after_s)
    await STRIKES[fault.kind](world, Random(fault.seed))  # noqa: S311  # no secrets
