"""When each host fails and how long it is away: draws, each host from a generator of its own."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.core.time import HOUR_MS
from everstep.fleet.scenario import Scenario
from everstep.fleet.topology import places
from everstep.sim.seeds import Seeds

TRACES: Final = Path(__file__).with_name("traces")
# The renewals of a Weibull with a decreasing rate take some means to settle; a fleet that is all
# new at the start would fail more often than its mean time says.
SETTLING_MEANS: Final = 4.0


@dataclass(slots=True, kw_only=True)
class Machine:
    """One host as it really is, whatever the services believe."""

    host_id: str
    index: int
    pod: str
    switch: int
    random: Random
    mean_ms: float  # between failures
    up: bool = True
    sick: bool = False
    lemon: bool = False
    epoch: int = 1  # grows with every return
    slow: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A recorded failure."""

    at_ms: int
    index: int
    down_ms: int


def machines(scenario: Scenario, seeds: Seeds) -> list[Machine]:
    """Return training hosts and spares alike; which is which, the inventory decides."""
    fleet, failures = scenario.fleet, scenario.failures
    count = fleet.hosts + fleet.spares
    lemons = set(seeds.of("lemons").sample(range(count), round(failures.lemon_share * count)))
    share, factor = len(lemons) / count, failures.lemon_factor
    usual_ms = failures.job_mtbf_h * HOUR_MS * fleet.hosts * (1 - share + share * factor)
    return [
        Machine(
            host_id=f"host-{index:05d}",
            index=index,
            pod=place.pod,
            switch=place.switch,
            random=seeds.of("host", index),
            mean_ms=usual_ms / factor if index in lemons else usual_ms,
            lemon=index in lemons,
        )
        for index, place in enumerate(places(fleet))
    ]


def first_failure_ms(machine: Machine, scenario: Scenario) -> int:
    """Return when a host fails first, for hosts of all ages at the start."""
    if scenario.failures.kind == "exponential":
        return failure_after_ms(machine, scenario)
    at_ms = -SETTLING_MEANS * machine.mean_ms * (1 + machine.random.random())
    while at_ms < 0:
        at_ms += _usual_ms(machine, scenario)
    return max(round(at_ms), 1)


def failure_after_ms(machine: Machine, scenario: Scenario, *, repaired: bool = False) -> int:
    """Return how long a host runs until it fails again."""
    failures = scenario.failures
    if repaired and failures.infant_share and machine.random.random() < failures.infant_share:
        return max(round(machine.random.expovariate(1 / (failures.infant_h * HOUR_MS))), 1)
    return max(round(_usual_ms(machine, scenario)), 1)


def repair_ms(random: Random, scenario: Scenario) -> int:
    """Return how long a repair takes, log-normal."""
    repair = scenario.repair
    drawn = random.lognormvariate(math.log(repair.median_h * HOUR_MS), repair.sigma)
    return max(round(drawn), 1)


def poisson_ms(random: Random, per_hour: float) -> int:
    """Return the time to the next event of a Poisson process."""
    return max(round(random.expovariate(per_hour) * HOUR_MS), 1)


def recorded(scenario: Scenario, random: Random) -> Iterator[Outage]:
    """Return recorded failures from a random moment on, again and again, without end.

    The record's time is stretched so that the training hosts together fail as often as the
    scenario says; its nodes are dealt out to hosts at random, so that bursts and bad nodes stay
    what they are. Repairs take as long as they did.
    """
    rows = _rows(scenario.failures.trace)
    hosts = scenario.fleet.hosts
    mean_h = rows[-1][0] / (len(rows) - 1)
    stretch = scenario.failures.job_mtbf_h / mean_h
    # Spares fail like the others: the record covers all, and the rate is that of the training ones.
    count = hosts + scenario.fleet.spares
    stretch *= hosts / count
    nodes = 1 + max(node for _, node, _ in rows)
    dealt = random.sample(range(max(count, nodes)), max(count, nodes))
    start, base_h = random.randrange(len(rows)), 0.0
    origin_h = rows[start][0]
    while True:
        for at_h, node, down_minutes in rows[start:]:
            at_ms = round((base_h + at_h - origin_h) * stretch * HOUR_MS)
            # A fleet that is larger than the record's repeats it on other hosts.
            index = dealt[node] % count
            yield Outage(at_ms=at_ms, index=index, down_ms=max(down_minutes, 1) * 60_000)
        base_h += rows[-1][0] - origin_h + mean_h
        start, origin_h = 0, 0.0
        dealt = random.sample(dealt, len(dealt))


@cache
def _rows(trace: str) -> tuple[tuple[float, int, int], ...]:
    path = Path(trace) if trace.endswith(".csv") else TRACES / f"{trace}.csv"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in TRACES.glob("*.csv")))
        raise InvalidInput(
            f"failures.trace {trace!r}: expected a path that ends in .csv, or one of {known}"
        )
    with path.open(newline="") as file:
        return tuple(
            (float(row["hours"]), int(row["node"]), int(row["down_minutes"]))
            for row in csv.DictReader(file)
        )


def _usual_ms(machine: Machine, scenario: Scenario) -> float:
    if scenario.failures.kind == "weibull":
        shape = scenario.failures.shape
        scale = machine.mean_ms / math.gamma(1 + 1 / shape)
        return machine.random.weibullvariate(scale, shape)
    return machine.random.expovariate(1 / machine.mean_ms)
