"""Runs seeds of scenarios, one process a core, and tells of each as it ends.

How far the processes are is one number a run in a list that they share: a queue would have to be
emptied, and nobody needs what a run said before.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from typing import Final, TextIO

from everstep.fleet.scenario import Scenario
from everstep.fleet.simulate import Outcome, SimulationFailedError, simulate
from everstep.sim.pool import processes as pool_of

TELL_S: Final = 0.5  # people watch days go by, not milliseconds

Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRun:
    """One seed of a scenario. ``named`` is what a person called the scenario: a name, or a path."""

    named: str
    scenario: Scenario
    seed: int
    days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """What came of a run: an outcome, or why it failed."""

    run: SeedRun
    outcome: Outcome | None = None
    failure: str = ""


def run_many(
    runs: Sequence[SeedRun],
    *,
    processes: int = 0,
    trace: TextIO | None = None,
    tell: Tell = lambda _: None,
) -> Iterator[SeedResult]:
    """Yield results as they come.

    Args:
        runs: what to run.
        processes: at once; 0: one a core.
        trace: takes every event of the one run; with more, their lines would mix.
        tell: is told how many simulated days are done, all runs together, again and again.
    """
    assert trace is None or len(runs) == 1, f"one trace of {len(runs)} runs"
    width = min(processes or os.cpu_count() or 1, len(runs))
    if width > 1:
        yield from _in_processes(runs, width, tell)
        return
    for index, run in enumerate(runs):
        before_days = sum(one.days for one in runs[:index])
        yield _one(run, trace, partial(_tell_after, tell, before_days))


def _in_processes(runs: Sequence[SeedRun], width: int, tell: Tell) -> Iterator[SeedResult]:
    with multiprocessing.Manager() as manager, pool_of(width) as pool:
        done_days = manager.list([0.0] * len(runs))
        running = {
            pool.submit(_one_of_many, run, done_days, index) for index, run in enumerate(runs)
        }
        while running:
            done, running = wait(running, timeout=TELL_S, return_when=FIRST_COMPLETED)
            tell(sum(done_days))
            yield from sorted((one.result() for one in done), key=lambda one: one.run.seed)


def _tell_after(tell: Tell, before_days: float, days: float) -> None:
    tell(before_days + days)


def _one_of_many(run: SeedRun, done_days: MutableSequence[float], index: int) -> SeedResult:
    """Run one, in a process of the pool."""

    def tell(days: float) -> None:
        done_days[index] = days

    result = _one(run, None, tell)
    tell(run.days)
    return result


def _one(run: SeedRun, trace: TextIO | None, tell: Tell) -> SeedResult:
    try:
        outcome = simulate(
            run.scenario,
            seed=run.seed,
            days=run.days,
            trace=trace,
            progress=lambda done_days, _: tell(done_days),
        )
    except SimulationFailedError as error:
        return SeedResult(run=run, failure=str(error))
    return SeedResult(run=run, outcome=outcome)
