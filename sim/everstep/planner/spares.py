"""How many spare hosts: an empirical quantile of simulated failures and repairs.

Not a Poisson quantile: real failure rates vary from day to day and real repairs have long tails
(Schroeder and Gibson, DSN 2006: repair times are log-normal). With 8 lost hosts a day and a day of
repair, Poisson asks for 15 spares at 99 %, while LANL's recorded failures ask for 18 to 54.

The model: every day's failure rate is the mean rate times a gamma-distributed factor of mean 1;
within a day failures are Poisson; repairs are independent and log-normal. With a rate spread of 0
the number of hosts out is exactly Poisson, which the tests use.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from everstep.planner.statistics import quantile

DAY_S: Final = 86_400.0
LOSSES: Final = 20_000  # leaves 200 above a 99 % quantile: its error is then about one host
LOSSES_OF_ROW: Final = 10_000
WARM_UP_REPAIRS: Final = 10  # an empty workshop fills within a few mean repair times
WARM_UP_MAX: Final = 100_000  # of losses, about 0.2 s
HOSTS_OUT_MAX: Final = WARM_UP_MAX / WARM_UP_REPAIRS  # more than that have not gathered by then
DAYS_MAX: Final = 50_000  # of fleets that hardly fail: 137 years hold 1,500 of a failure a month
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """How hosts are lost and come back.

    Attributes:
        losses_per_s: lost hosts a second of training, on average.
        rate_spread: standard deviation over mean of the daily failure rate.
        repair_s: mean time from the loss until the host can serve as a spare again.
        repair_spread: sigma of the logarithm of repair times.
    """

    losses_per_s: float
    rate_spread: float
    repair_s: float
    repair_spread: float

    @property
    def warm_up(self) -> int:
        """Count of losses before the count begins."""
        return min(WARM_UP_MAX, math.ceil(WARM_UP_REPAIRS * self.hosts_out))

    @property
    def hosts_out(self) -> float:
        """Hosts that are in repair at a time, on average, while training goes on."""
        return self.repair_s * self.losses_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareRow:
    """What so many spares give.

    Attributes:
        spares: hosts that stand by.
        enough: share of lost hosts for which a spare was there at once.
        wait_s: mean wait for a spare, over all lost hosts.
        training: share of time that is not spent waiting for a host.
    """

    spares: int
    enough: float
    wait_s: float
    training: float


def spares_needed(
    workshop: Workshop, shares: Sequence[float], patience_s: float = 0.0, seed: int = 0
) -> tuple[int, ...]:
    """Return for each share the spares that suffice for so many of the lost hosts.

    A lost host needs as many spares as hosts will still be out after the patience, itself included:
    then a spare is there at once, or a repaired host comes back in time.

    Args:
        workshop: how hosts are lost and repaired.
        shares: of lost hosts, 0 to 1.
        patience_s: how long a restart may wait for a spare.
        seed: of the simulation.
    """
    needed = _needed(workshop, patience_s, seed)
    if not needed:
        return (0,) * len(shares)
    return tuple(int(quantile(needed, share)) for share in shares)


def spare_row(workshop: Workshop, spares: int, seed: int = 0) -> SpareRow:
    """Return what so many spares give when the job stands still while it waits for one.

    Failures come only while the job trains; repairs go on while it waits.
    """
    rng = random.Random(f"{seed}/row")  # noqa: S311  # no secrets
    back_at: list[float] = []
    waited_s = 0.0
    waits = losses = 0
    now_s = counted_from_s = 0.0
    warm_up = workshop.warm_up
    for gap_s in _gaps(workshop, rng):
        now_s += gap_s
        losses += 1
        bisect.insort(back_at, now_s + _repair(workshop, rng))
        del back_at[: bisect.bisect_right(back_at, now_s)]
        if losses == warm_up:
            counted_from_s = now_s
        if len(back_at) > spares:
            wait_s = back_at[len(back_at) - spares - 1] - now_s
            now_s += wait_s
            if losses > warm_up:
                waited_s += wait_s
                waits += 1
        if losses == warm_up + LOSSES_OF_ROW:
            break
    counted = max(losses - warm_up, 1)
    wall_s = now_s - counted_from_s
    return SpareRow(
        spares=spares,
        enough=1 - waits / counted,
        wait_s=waited_s / counted,
        training=1 - waited_s / wall_s if wall_s else 1.0,
    )


@lru_cache(maxsize=256)  # a sweep asks for the same fleet again and again
def _needed(workshop: Workshop, patience_s: float, seed: int) -> tuple[int, ...]:
    """Return the sorted spares that each lost host would have needed; none fails: empty."""
    rng = random.Random(f"{seed}/needed")  # noqa: S311  # no secrets
    back_at: list[float] = []
    needed: list[int] = []
    now_s = 0.0
    warm_up = workshop.warm_up
    for i, gap_s in enumerate(_gaps(workshop, rng)):
        if i == warm_up + LOSSES:
            break
        now_s += gap_s
        bisect.insort(back_at, now_s + _repair(workshop, rng))
        del back_at[: bisect.bisect_right(back_at, now_s)]
        if i >= warm_up:
            needed.append(len(back_at) - bisect.bisect_right(back_at, now_s + patience_s))
    return tuple(sorted(needed))


def _gaps(workshop: Workshop, rng: random.Random) -> Iterator[float]:
    """Yield times of training between lost hosts; each day has its own failure rate."""
    gap_s = 0.0
    for _ in range(DAYS_MAX):
        rate = workshop.losses_per_s * _factor(workshop.rate_spread, rng)
        left_s = DAY_S
        while rate > 0 and (next_s := rng.expovariate(rate)) < left_s:
            left_s -= next_s
            yield gap_s + next_s
            gap_s = 0.0
        gap_s += left_s


def _factor(spread: float, rng: random.Random) -> float:
    """Return a day's factor: mean 1, standard deviation ``spread``, gamma-distributed."""
    return rng.gammavariate(1 / spread**2, spread**2) if spread > 0 else 1.0


def _repair(workshop: Workshop, rng: random.Random) -> float:
    """Return a log-normal repair time [s] of the asked mean."""
    sigma = workshop.repair_spread
    return rng.lognormvariate(math.log(workshop.repair_s) - sigma * sigma / 2, sigma)
