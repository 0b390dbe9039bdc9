"""Simulates 64 days of 16,384 chips under the services' own decisions, 20 seeds a case.

Where a closed form of ``everstep.core.waste`` applies (failures at random, hosts always to be had),
its waste is beside the simulated one. Run: ``make bench NAME=simulation`` or ``python -m
benchmarks.simulation``; ``--days`` and ``--seeds`` make it shorter; ``--only`` takes some cases and
keeps the others with their older dates.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, Final

from benchmarks.support import figures
from msgspec.structs import replace

from everstep.core.waste import exact_shares
from everstep.fleet.ledger import ALL_CAUSES
from everstep.fleet.recorded import events_of
from everstep.fleet.scenario import Scenario, parse
from everstep.fleet.simulate import Outcome, simulate
from everstep.planner.history import checked
from everstep.planner.history_events import read_events
from everstep.planner.replay import Policy, replay
from everstep.planner.statistics import estimate

SEEDS: Final = 20
DAYS: Final = 64.0
HOSTS: Final = 2_048
OBJECTS_ONLY: Final = """
[checkpoint]
memory_every = 0
object_every = 53
object_stall_s = 5.0
"""


# Spares that run out: the job waits for hosts, or goes on with fewer data-parallel groups. What the
# planner makes of the run that waited (``plan --from-history``, ``docs/planner.md``) is kept beside
# what came of shrinking for real.
SHORT_OF_SPARES: Final = {"spares_run_out_0.1_percent": 2, "spares_run_out_0_percent": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A scenario, what it must reach, and whether a closed form describes it."""

    text: str = ""
    goodput_min: float | None = None
    modelled: bool = False
    measured: bool = False  # with the restart and the stall of ``measured``


CASES: Final = {
    # DESIGN section 11: M = 3.05 h, 60 s restart, memory tier, 2 % spares.
    "target": Case(goodput_min=0.99, modelled=True),
    "measured_restart_and_stall": Case(modelled=True, measured=True),
    "stop_and_restart_120s": Case(
        text=f"restart = {{ ranks_s = 119.3 }}\n{OBJECTS_ONLY}", modelled=True
    ),
    "stop_and_restart_60s": Case(text=OBJECTS_ONLY, modelled=True),
    "memory_off": Case(text="checkpoint = { memory_every = 0 }", modelled=True),
    "detection_10min": Case(text="detection = { host_s = 600 }", modelled=True),
    "four_times_the_failures": Case(
        text="failures = { job_mtbf_h = 0.7625 }\nfleet = { spares = 82 }",
        goodput_min=0.96,
        modelled=True,
    ),
    "weibull_lemons_and_groups": Case(
        text="""
[failures]
kind = "weibull"
shape = 0.75
rank_share = 0.3
infant_share = 0.2
lemon_share = 0.02
pod_power_per_year = 0.5
switch_per_year = 0.2
""",
    ),
    "lanl_18": Case(text="failures = { kind = 'trace', trace = 'lanl-18' }", goodput_min=0.98),
    "lanl_20": Case(text="failures = { kind = 'trace', trace = 'lanl-20' }", goodput_min=0.98),
    **{
        f"{name}{ending}": Case(
            text="failures = { kind = 'trace', trace = 'lanl-20' }\n"
            f"fleet = {{ spares = {spares} }}\njob = {{ no_spare = '{no_spare}' }}"
        )
        for name, spares in SHORT_OF_SPARES.items()
        for ending, no_spare in (("", "wait"), ("_elastic", "elastic"))
    },
    **{
        f"lanl_20_spares_{100 * spares / HOSTS:.1f}_percent": Case(
            text="failures = { kind = 'trace', trace = 'lanl-20' }\n"
            f"fleet = {{ spares = {spares} }}"
        )
        for spares in (10, 20, 82)
    },
}


def scenario_of(name: str) -> Scenario:
    """Return a case's scenario."""
    case = CASES[name]
    scenario = parse(f'name = "{name}"\n{case.text}', source=name)
    return measured(scenario) if case.measured else scenario


def measured(scenario: Scenario) -> Scenario:
    """Return a scenario with what other benchmarks have kept, of 8 ranks on 2 cores.

    From the answers to a start to a new step (``recovery.json``), and what a snapshot takes of a
    step (``overhead.json``, the large model), as the same share of the scenario's step.
    """
    recovery, overhead = figures.kept("recovery"), figures.kept("overhead")
    if not (recovery and overhead):
        sys.exit("nothing is measured yet: make bench NAME=recovery, make bench NAME=overhead")
    stages, large = recovery["stages_s"]["ours"], overhead["large"]
    ranks_s = stages["new_step"] - stages["start_answered"]
    step_ms = large["step_ms"]["everstep"]["median"]
    share = large["inside_the_step_ms"]["everstep"]["snapshot"] / step_ms
    stall_s = share * scenario.job.step_s
    return replace(
        scenario,
        restart=replace(scenario.restart, ranks_s=round(ranks_s, 3)),
        checkpoint=replace(scenario.checkpoint, memory_stall_s=round(stall_s, 4)),
    )


def model_waste(scenario: Scenario) -> float:
    """Return what the complete model says of a case with one tier that matters.

    With the memory tier, every failure is taken to restart from memory: two hosts of a pair are
    lost together once in thousands of failures.
    """
    cadence, restart, detection = scenario.cadence(), scenario.restart, scenario.detection
    memory = cadence.memory_every > 0
    every = cadence.memory_every or cadence.object_every
    stall_s = (cadence.memory_stall_ms if memory else cadence.object_stall_ms) / 1e3
    later_s = (cadence.replicate_ms if memory else cadence.upload_ms) / 1e3
    control_s = max(restart.fence_s, restart.place_s) + restart.plan_s + restart.start_s
    # Between two answers the first rank's host is asked once more.
    control_s += restart.fence_s
    return exact_shares(
        interval_s=every * cadence.step_ms / 1e3,
        stall_s=stall_s,
        mtbf_s=scenario.failures.job_mtbf_h * 3_600,
        restart_s=restart.ranks_s + control_s + (0 if memory else scenario.upload_s),
        detection_s=detection.host_s,
        durable_after_s=stall_s + later_s,
        found_together=True,
    ).waste


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One seed of a case; ``replayed`` is its goodput by policy, where that is asked for."""

    outcome: Outcome
    processor_s: float
    replayed: dict[str, float]


def one(name: str, seed: int, days: float) -> Seed:
    """Simulate one seed of a case."""
    trace = io.StringIO() if name in SHORT_OF_SPARES else None
    scenario = scenario_of(name)
    begun_s = time.process_time()
    outcome = simulate(scenario, seed=seed, days=days, trace=trace)
    spent_s = time.process_time() - begun_s
    replayed = {}
    if trace is not None:
        events = events_of(trace.getvalue(), scenario, days=days)
        stall_ms = round(1e3 * scenario.checkpoint.memory_stall_s)
        history = checked(read_events(events, source=name, stall_ms=stall_ms))
        policies = {"wait": Policy(no_spare="wait"), "elastic": Policy(no_spare="elastic")}
        replayed = {word: replay(history, policy).goodput for word, policy in policies.items()}
    return Seed(outcome=outcome, processor_s=spent_s, replayed=replayed)


def figures_of(name: str, runs: Sequence[Seed]) -> dict[str, Any]:
    """Summarise the seeds of a case."""
    case, scenario = CASES[name], scenario_of(name)
    outcomes = [run.outcome for run in runs]
    goodput = estimate([outcome.goodput for outcome in outcomes])
    found: dict[str, Any] = {
        "goodput": round(goodput.mean, 5),
        "goodput_95_percent": [round(goodput.low, 5), round(goodput.high, 5)],
        "goodput_with_spares": round(fmean(o.goodput_with_spares for o in outcomes), 5),
        "spares": scenario.fleet.spares,
        "failures": round(fmean(o.failures for o in outcomes), 1),
        "lost_steps": round(fmean(o.lost_steps for o in outcomes), 1),
        "restores_from_store": round(
            fmean(o.counts.get("restores_from_store", 0) for o in outcomes), 2
        ),
        "most_hosts_out": max(o.hosts_out_max for o in outcomes),
        "shares": {
            cause: round(fmean(o.causes_ms[cause] / o.wall_ms for o in outcomes), 6)
            for cause in ALL_CAUSES
            if any(o.causes_ms[cause] for o in outcomes)
        },
        "processor_s_a_seed": figures.summary([run.processor_s for run in runs], 1),
    }
    for word in ("wait", "elastic") if name in SHORT_OF_SPARES else ():
        replayed = estimate([run.replayed[word] for run in runs])
        found |= {
            f"replayed_{word}": round(replayed.mean, 5),
            f"replayed_{word}_95_percent": [round(replayed.low, 5), round(replayed.high, 5)],
        }
    if case.measured:
        found |= {
            "restart_of_ranks_s": scenario.restart.ranks_s,
            "stall_s": scenario.checkpoint.memory_stall_s,
        }
    if case.goodput_min is not None:
        found |= {"goodput_to_reach": case.goodput_min, "reached": goodput.low >= case.goodput_min}
    if case.modelled:
        model = model_waste(scenario)
        found |= {
            "model_waste": round(model, 5),
            "waste_over_model": round((1 - goodput.mean) / model, 4),
        }
    return found


def main() -> None:
    """Simulate every case, and print what came of it."""
    parser = argparse.ArgumentParser(prog="benchmarks.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--processes", type=int, default=2, help="seeds at a time, a core each")
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    options = parser.parse_args()
    before = figures.machine()
    cases = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for name in options.only:
            waiting = [pool.submit(one, name, seed, options.days) for seed in range(options.seeds)]
            cases[name] = figures_of(name, [future.result() for future in waiting])
            cases[name]["date"] = datetime.now(UTC).isoformat(timespec="seconds")
            print(json.dumps({name: cases[name]}), file=sys.stderr, flush=True)
    whole = (options.seeds, options.days) == (SEEDS, DAYS)
    older = figures.kept("simulation").get("cases", {}) if whole else {}
    figures.save(
        "simulation",
        {
            "days": options.days,
            "seeds": options.seeds,
            "made_in_this_run": list(cases),
            "cases": {name: found for name in CASES if (found := (older | cases).get(name))},
            "replayed": "from the events of the run that waited, as plan --from-history does",
            "machine": before,
        },
        keep=whole,
    )


if __name__ == "__main__":
    main()
