"""Cuts a failing plan down to what it needs to fail.

Removes faults (halves first, then one by one), then tries one job for two, plainer ones, a good
network for a bad one, right clocks, and the smallest fleet. A candidate counts when it fails for
the same reason: the text of the first thing that is wrong, without its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from everstep.sim.jobs import JobPlan, plain_job
from everstep.sim.network import Conditions
from everstep.sim.swarm import Outcome, Plan, run_plan
from everstep.sim.world import Fleet


def reason_of(outcome: Outcome) -> str:
    """Return what is wrong first, without ids and numbers; "" for nothing."""
    if not outcome.wrong:
        return ""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", outcome.wrong[0])


def shrink(
    outcome: Outcome, *, tell: Callable[[Plan], None] | None = None, runs_max: int = 200
) -> Outcome:
    """Return a failing outcome of the smallest plan found within ``runs_max`` runs."""
    wanted, best, runs = reason_of(outcome), outcome, 0
    assert wanted, f"seed {outcome.plan.seed} does not fail"
    smaller = True
    while smaller and runs < runs_max:
        smaller = False
        for candidate in _candidates(best.plan):
            runs += 1
            tried = run_plan(candidate)
            if reason_of(tried) == wanted:
                best, smaller = tried, True
                if tell is not None:
                    tell(candidate)
                break
            if runs >= runs_max:
                break
    return best


def _candidates(plan: Plan) -> Iterator[Plan]:
    """Yield smaller plans, the boldest first."""
    faults = plan.faults
    size = len(faults) // 2
    while size:
        for start in range(0, len(faults), size):
            yield replace(plan, faults=faults[:start] + faults[start + size :])
        size //= 2
    if len(plan.jobs) > 1:
        for index in range(len(plan.jobs)):
            yield replace(plan, jobs=plan.jobs[:index] + plan.jobs[index + 1 :])
    for index, job in enumerate(plan.jobs):
        for plainer in (one for one in _plainer(job) if one != job):
            yield replace(plan, jobs=(*plan.jobs[:index], plainer, *plan.jobs[index + 1 :]))
    if plan.hold_s:
        yield replace(plan, hold_s=0)
    if plan.conditions != Conditions():
        yield replace(plan, conditions=Conditions())
    if plan.clocks_differ:
        yield replace(plan, clocks_differ=False)
    if plan.fleet.hosts_per_pod > 2:
        yield replace(plan, fleet=Fleet(pods=plan.fleet.pods, hosts_per_pod=2))


def _plainer(job: JobPlan) -> Iterator[JobPlan]:
    plain = plain_job(job.number)
    yield plain
    for name in ("at_s", "elastic", "dp_min", "scale", "recompute", "budget"):
        yield replace(job, **{name: getattr(plain, name)})
