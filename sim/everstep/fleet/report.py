"""The outcome of some seeds as text: goodput, where the rest went, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from everstep.fleet.ledger import ALL_CAUSES
from everstep.fleet.scenario import Scenario
from everstep.fleet.simulate import Outcome
from everstep.planner.statistics import estimate


def text_report(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    """Write the report of at least one outcome."""
    fleet = scenario.fleet
    first = outcomes[0]
    seeds = f"seed {first.seed}" if len(outcomes) == 1 else f"{len(outcomes)} seeds"
    size = f"{fleet.hosts:,} hosts and {fleet.spares} spares"
    lines = [
        f"{scenario.name}: {first.days:g} days of {size}, {seeds}",
        f"  goodput            {_share([o.goodput for o in outcomes])}",
        f"  with spares        {_share([o.goodput_with_spares for o in outcomes])}",
    ]
    for cause in ALL_CAUSES:
        shares = [outcome.causes_ms[cause] / outcome.wall_ms for outcome in outcomes]
        if any(shares) and cause != "useful":
            lines.append(f"  {cause:<18} {fmean(shares):8.3%}")
    lines += [
        f"  failures           {fmean(o.failures for o in outcomes):8.1f}",
        f"  generations        {fmean(o.generations for o in outcomes):8.1f}",
        f"  lost steps         {fmean(o.lost_steps for o in outcomes):8.1f}",
        f"  most hosts out     {max(o.hosts_out_max for o in outcomes):8d}",
        f"  trace              {first.trace_sha256[:16]}"
        + (" (of the first seed)" if len(outcomes) > 1 else ""),
    ]
    return "\n".join(lines) + "\n"


def _share(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:8.3%}"
    found = estimate(values)
    return f"{found.mean:8.3%}  ({found.low:.3%} to {found.high:.3%}, 95 %)"
