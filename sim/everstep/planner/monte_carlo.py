"""Checks the closed forms with random failures: jumps from failure to failure, not step by step.

``simulate_goodput`` is the project's first model of a run. ``simulate_run`` goes further: failures
strike restarts too, saves become durable late, and two tiers share the restarts. It is an
independent reckoning of what the formulas of ``core.waste`` claim, not of our controller: that
is the fleet simulator's task.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.planner.statistics import Estimate, estimate

Progress = Callable[[int, int], None]
FAILURES_MAX: Final = 200_000  # of one run, about 1 s: a year with one every three minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a run saves and what a failure costs it, in seconds.

    Attributes:
        interval_s: useful work between two saves to the nearest tier.
        stall_s: of each of them.
        saves_per_upload: every so many saves, one goes on to the object store.
        upload_stall_s: the additional stall of that one.
        upload_s: from the end of its stall until it is durable.
        memory_loss: share of failures that only the object store survives; with 1 there is no
            memory tier.
        restart_s: from the failure until training goes on, from memory.
        object_restart_s: the same from the object store.
    """

    interval_s: float
    stall_s: float
    saves_per_upload: int = 1
    upload_stall_s: float = 0.0
    upload_s: float = 0.0
    memory_loss: float = 1.0
    restart_s: float
    object_restart_s: float

    def elapsed_s(self, first: int, last: int) -> float:
        """Return the time from just after save ``first`` until save ``last`` is taken."""
        uploads = last // self.saves_per_upload - first // self.saves_per_upload
        return (last - first) * (self.interval_s + self.stall_s) + uploads * self.upload_stall_s

    def saves_within(self, first: int, time_s: float) -> int:
        """Return the last save that is taken within ``time_s`` of training on from ``first``."""
        segment_s = self.interval_s + self.stall_s
        cycle_s = self.saves_per_upload * segment_s + self.upload_stall_s
        last = first + int(time_s // cycle_s) * self.saves_per_upload
        while self.elapsed_s(first, last + 1) <= time_s:
            last += 1
        return last


def simulate_goodput(
    interval_s: float,
    stall_s: float,
    mtbf_s: float,
    restart_s: float,
    useful_target_s: float,
    seed: int = 0,
) -> float:
    """Monte Carlo check of the first-order model: useful time / wall time.

    The project's first model of a run: what the target (preset `mission`) was computed with.
    """
    rng = random.Random(seed)  # noqa: S311  # no secrets
    wall = useful = 0.0
    next_failure = rng.expovariate(1 / mtbf_s)
    while useful < useful_target_s:
        segment = interval_s + stall_s  # work, then a checkpoint stall
        if wall + segment <= next_failure:
            wall += segment
            useful += interval_s
        else:
            wall = next_failure + restart_s  # lose the work since the last checkpoint
            next_failure = wall + rng.expovariate(1 / mtbf_s)
    return useful / wall


def simulate_run(
    policy: Policy, mtbf_s: float, useful_target_s: float, rng: random.Random
) -> float:
    """Return the wall time [s] of one whole run under Poisson failures.

    Args:
        policy: when it saves.
        mtbf_s: mean time between failures of the whole job.
        useful_target_s: useful work of the run; it ends when that is done, without a last save.
        rng: draws the failures. An upload that a failure interrupts is lost.

    Raises:
        InvalidInput: when the run has not ended after ``FAILURES_MAX`` failures.
    """
    last_save, rest_s = divmod(useful_target_s, policy.interval_s)
    wall_s, saved, durable = 0.0, 0, 0
    away_s = 0.0
    for _ in range(FAILURES_MAX):
        until_failure_s = rng.expovariate(1 / mtbf_s)
        if until_failure_s < away_s:  # a failure during the restart begins it anew
            wall_s += until_failure_s
            continue
        wall_s += away_s
        trained_s = until_failure_s - away_s
        remaining_s = policy.elapsed_s(saved, int(last_save)) + rest_s
        if remaining_s <= trained_s:
            return wall_s + remaining_s
        wall_s += trained_s
        durable = max(durable, _last_durable(policy, saved, trained_s))
        if rng.random() < policy.memory_loss:
            saved, away_s = durable, policy.object_restart_s
        else:
            saved, away_s = policy.saves_within(saved, trained_s), policy.restart_s
    raise InvalidInput(
        f"a simulated run has not ended after {FAILURES_MAX:,} failures: they come faster than "
        "work is saved; plan for fewer failures, or shorter stalls and restarts"
    )


def simulate(
    policy: Policy,
    *,
    mtbf_s: float,
    useful_target_s: float,
    runs: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Estimate, tuple[float, ...]]:
    """Return the goodput of independent runs with its confidence interval, and their wall times.

    The wall times [s] are sorted. Run i has its own generator, so that more runs never change the
    first ones.
    """
    walls = []
    for i in range(runs):
        rng = random.Random(f"{seed}/{i}")  # noqa: S311  # no secrets
        walls.append(simulate_run(policy, mtbf_s, useful_target_s, rng))
        if progress is not None:
            progress(i + 1, runs)
    return estimate([useful_target_s / wall for wall in walls]), tuple(sorted(walls))


def _last_durable(policy: Policy, saved: int, time_s: float) -> int:
    """Return the last save to the object store that is durable after ``time_s`` of training."""
    if time_s < policy.upload_s:
        return 0
    last = policy.saves_within(saved, time_s - policy.upload_s)
    last -= last % policy.saves_per_upload
    return last if last > saved else 0
