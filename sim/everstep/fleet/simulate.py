"""Runs one seed of a scenario and says where the time went."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TextIO

import msgspec

from everstep.checkpoint_registry.commands import NoteJob
from everstep.controller.commands import LaunchJob
from everstep.core.errors import EverstepError
from everstep.core.spec import STEPS_MAX
from everstep.core.time import HOUR_MS
from everstep.fleet.mishaps import Mishaps
from everstep.fleet.run import State
from everstep.fleet.scenario import Scenario
from everstep.fleet.services import JOB_ID
from everstep.fleet.world import World, join
from everstep.host_inventory.commands import JoinHosts
from everstep.monitor.commands import MarkJob
from everstep.monitor.events import Mark
from everstep.monitor.ledger import Cause
from everstep.sim.loop import run as run_in_virtual_time

Progress = Callable[[float, float], None]  # simulated days, of so many

# After the end nothing breaks any more: every host is back after some times its usual repair.
DAY_MS: Final = 24 * HOUR_MS
LIVENESS_MS_MAX: Final = 30 * DAY_MS


class SimulationFailedError(EverstepError):
    """An invariant broke, or the job did not come back: the seed finds it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one seed. ``causes_ms`` sum to ``wall_ms``; shares are of the wall time."""

    scenario: str
    seed: int
    days: float
    wall_ms: int
    causes_ms: dict[str, int]
    goodput: float
    goodput_with_spares: float
    failures: int
    counts: dict[str, int]
    generations: int
    lost_steps: int
    hosts_out_max: int
    trace_sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def simulate(
    scenario: Scenario,
    *,
    seed: int,
    days: float,
    trace: TextIO | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Simulate ``days`` of a scenario; the same arguments give the same trace, byte for byte.

    Raises:
        SimulationFailedError: an invariant broke, or the job did not train again at the end.
    """
    # Nothing here leaves cycles behind that matter, and looking for some among the hosts of a fleet
    # would take a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return run_in_virtual_time(_simulate(scenario, seed, days, trace, progress))
    finally:
        if collecting:
            gc.enable()


async def _simulate(
    scenario: Scenario,
    seed: int,
    days: float,
    trace: TextIO | None,
    progress: Progress | None,
) -> Outcome:
    world = World(scenario, seed, trace)
    mishaps = Mishaps(world)
    routing = asyncio.create_task(world.services.route())
    routing.add_done_callback(
        lambda task: None if task.cancelled() else world.fail(task.exception() or RuntimeError())
    )
    await _launch(world)
    mishaps.begin()
    _report(world, days, progress)
    world.after(round(days * DAY_MS), world.ended.set)
    await world.ended.wait()
    mishaps.over = True
    causes = _close_books(world)
    await _comes_back(world)
    if world.failure is not None:
        raise SimulationFailedError(str(world.failure)) from world.failure
    return _outcome(world, seed, days, causes)


async def _launch(world: World) -> None:
    scenario, now_ms = world.scenario, world.clock.now_ms()
    services = world.services
    joins = tuple(join(machine, now_ms) for machine in world.machines.values())
    await services.fleet.handle(JoinHosts(joins=joins))
    await services.watches.handle(
        MarkJob(job_id=JOB_ID, generation=0, mark=Mark.SUBMITTED, at_ms=now_ms)
    )
    await services.histories.handle(
        NoteJob(
            job_id=JOB_ID,
            keep_last=scenario.checkpoint.keep_last,
            layout=scenario.layout,
            at_ms=now_ms,
        )
    )
    await services.runner.apply(LaunchJob(job_id=JOB_ID, spec_json=_spec(scenario), at_ms=now_ms))


def _spec(scenario: Scenario) -> str:
    layout, part = scenario.layout, scenario.checkpoint
    spec: dict[str, Any] = {
        "name": scenario.name,
        "entry": "simulated:main",
        "layout": {"pp": layout.pp, "dp_shard": layout.dp_shard, "tp": layout.tp},
        "steps": STEPS_MAX,  # it never ends by itself
        "recovery": {
            "restarts_per_hour_max": scenario.job.restarts_per_hour_max,
            "no_spare": scenario.job.no_spare,
            "dp_min": scenario.job.dp_min,
        },
    }
    if part.interval == "auto":
        spec["checkpoint"] = {
            "interval": "auto",
            "memory_every_steps": part.memory_every,
            "object_every_steps": part.object_every,
            "failures": {
                "chip_mtbf_hours": part.believed_chip_mtbf_h,
                "memory_lost_share": part.believed_memory_lost_share,
            },
        }
    return msgspec.json.encode(spec).decode()


def _report(world: World, days: float, progress: Progress | None) -> None:
    """Tell every simulated day, and let memory that cycles hold go."""

    def day() -> None:
        gc.collect(0)
        if progress is not None:
            progress(min(world.now_ms() / DAY_MS, days), days)
        world.after(DAY_MS, day)

    world.after(DAY_MS, day)


def _close_books(world: World) -> dict[str, int]:
    """Lay the time up to the end, and return the causes as they are then."""
    if world.run.state is State.TRAINING:
        world.run.stands_still(world.now_ms(), Cause.RESTART)
    else:
        world.trains_again.clear()
        world.run.switch(world.now_ms(), world.run.cause)
    return dict(world.ledger.causes)


async def _comes_back(world: World) -> None:
    """Wait until a job that did not train at the end trains again, now that nothing breaks."""
    if world.failure is not None:
        return
    try:
        await asyncio.wait_for(world.trains_again.wait(), LIVENESS_MS_MAX / 1e3)
    except TimeoutError:
        phase = (await world.services.job()).phase
        world.fail(
            AssertionError(
                f"the job is {phase} and does not train {LIVENESS_MS_MAX // DAY_MS} days after the "
                f"last mishap; {len(world.observer.incidents_open)} incidents are open"
            )
        )


def _outcome(world: World, seed: int, days: float, causes: dict[str, int]) -> Outcome:
    scenario, counts = world.scenario, world.observer.counts
    wall_ms = sum(causes.values())
    goodput = causes[Cause.USEFUL] / wall_ms
    fleet = scenario.fleet
    return Outcome(
        scenario=scenario.name,
        seed=seed,
        days=days,
        wall_ms=wall_ms,
        causes_ms=causes,
        goodput=goodput,
        goodput_with_spares=goodput * fleet.hosts / (fleet.hosts + fleet.spares),
        failures=counts["host_failures"] + counts["rank_failures"],
        counts=dict(sorted(counts.items())),
        generations=world.observer.generation,
        lost_steps=world.ledger.lost_steps,
        hosts_out_max=world.out_max,
        trace_sha256=world.observer.digest,
    )
