"""Runs many seeds at once, one process a core, and tells of each as it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import count
from typing import Final

from everstep.sim.pool import processes as pool_of
from everstep.sim.swarm import run_seed

AHEAD: Final = 2  # keeps every process busy while the results of the others are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """What one seed came to."""

    seed: int
    wrong: tuple[str, ...]
    faults: tuple[str, ...]
    virtual_s: float
    digest: str


def run_many(
    *, start: int, seeds: int | None = None, seconds: float | None = None, processes: int = 0
) -> Generator[SeedResult]:
    """Yield results as they come.

    Args:
        start: the first seed; the others follow it.
        seeds: how many; None: until ``seconds`` are over.
        seconds: begin no new seed but the first after this time [s]; None: no limit.
        processes: at once; 0: one a core.
    """
    assert seeds is not None or seconds is not None, "there is no end to it"
    width = processes or os.cpu_count() or 1
    deadline_s = None if seconds is None else time.monotonic() + seconds
    numbers = count(start) if seeds is None else iter(range(start, start + seeds))
    with pool_of(width) as pool:
        running: set[Future[SeedResult | None]] = set()
        left = True
        while True:
            while left and len(running) < width * AHEAD:
                seed = next(numbers, None)
                on_time = deadline_s is None or seed == start or time.monotonic() < deadline_s
                left = seed is not None and on_time
                if left:
                    until_s = None if seed == start else deadline_s
                    running.add(pool.submit(one_seed, seed, until_s))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            results = [result for future in done if (result := future.result()) is not None]
            yield from sorted(results, key=lambda one: one.seed)


def one_seed(seed: int | None, until_s: float | None = None) -> SeedResult | None:
    """Run one seed, in a process of the pool; none that has waited past ``until_s``."""
    assert seed is not None
    if until_s is not None and time.monotonic() >= until_s:  # one clock for all of a machine
        return None
    outcome = run_seed(seed)
    return SeedResult(
        seed=seed,
        wrong=outcome.wrong,
        faults=tuple(str(fault) for fault in outcome.plan.faults),
        virtual_s=outcome.virtual_s,
        digest=outcome.digest,
    )
