"""Runs many seeds at once, one process a core, and tells of each as it ends."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from typing import Final

from everstep.sim.swarm import run_seed

# Enough to keep every process busy while the results of the others are looked at.
AHEAD: Final = 4


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
) -> Iterator[SeedResult]:
    """Yield results as they come.

    Args:
        start: the first seed; the others follow it.
        seeds: how many; None: until ``seconds`` are over.
        seconds: begin no new seed after this time [s]; None: no limit.
        processes: at once; 0: one a core.
    """
    assert seeds is not None or seconds is not None, "there is no end to it"
    width = processes or os.cpu_count() or 1
    deadline_s = None if seconds is None else time.monotonic() + seconds
    numbers = count(start) if seeds is None else iter(range(start, start + seeds))
    with ProcessPoolExecutor(width, initializer=_quiet) as pool:
        running: set[Future[SeedResult]] = set()
        left = True
        while True:
            while left and len(running) < width * AHEAD:
                seed = next(numbers, None)
                left = seed is not None and (deadline_s is None or time.monotonic() < deadline_s)
                if left:
                    running.add(pool.submit(one_seed, seed))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from sorted((future.result() for future in done), key=lambda one: one.seed)


def one_seed(seed: int | None) -> SeedResult:
    """Run one seed, in a process of the pool."""
    assert seed is not None
    outcome = run_seed(seed)
    return SeedResult(
        seed=seed,
        wrong=outcome.wrong,
        faults=tuple(str(fault) for fault in outcome.plan.faults),
        virtual_s=outcome.virtual_s,
        digest=outcome.digest,
    )


def _quiet() -> None:
    """The services' logs of a thousand broken worlds are nobody's reading."""
    logging.disable(logging.CRITICAL)
