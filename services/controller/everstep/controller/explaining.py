"""Says why a job snapshots as often as it does, and what would change that.

The same pure functions that decide (``interval``) are asked, so the answer cannot differ from what
is done.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from everstep.controller import interval as policy
from everstep.controller.commands import Measured
from everstep.controller.events import IntervalGrounds
from everstep.controller.interval import Belief
from everstep.controller.state import Job
from everstep.core.spec import parse_spec_json
from everstep.core.waste import Tier, tier_shares

FORMULAS: Final = {
    "interval": "sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C for each tier (Daly 2006), with "
    "the tier's own stall C and mean time M between the failures that restart from it",
    "waste": "sum over the tiers of C/T + (T/2 + L - C + R) / M (Benoit et al. 2017)",
    "mtbf": "Gamma prior worth two failures, Poisson failures: (2 prior + time) / (2 + failures)",
    "memory_lost_share": "Beta prior worth one loss: (n prior + losses) / (n + recoveries)",
    "bounds": "memory tier every step while that costs less than 1 %; object tier at least as long "
    "as the longest upload of late, at most an hour unless that would cost more than 0.1 %",
}


def explained(job: Job, measured: Measured, *, at_ms: int) -> dict[str, Any]:
    """Return the answer for the API; numbers that are not known yet are None."""
    interval = job.interval
    spec = parse_spec_json(job.spec_json)
    belief = policy.belief_of(spec)
    decided = interval.decided
    grounds = policy.grounds_for(
        measured,
        interval.failures,
        belief,
        decided.grounds if decided is not None else None,
        at_ms=at_ms,
    )
    schedule = interval.schedule
    told = {
        "job_id": job.job_id,
        "auto": interval.auto,
        "schedule": asdict(schedule),
        "pending": interval.pending,
        "in_force": asdict(interval.in_force) if interval.in_force else None,
        "decided": {"at_ms": decided.at_ms, "reason": decided.reason} if decided else None,
        "inputs": _inputs(grounds, measured, belief, job),
        "formulas": FORMULAS,
    }
    if not grounds.step_us:
        return {**told, "expected_waste": None, "best": None, "would_change": _by_hand(job)}
    choice = policy.choose(grounds, schedule)
    best = {
        "memory_every_steps": choice.memory_every_steps,
        "object_every_steps": choice.object_every_steps,
        "waste": choice.waste_after,
    }
    return {
        **told,
        "expected_waste": _expected_waste(grounds, job),
        "best": best,
        "would_change": _would_change(grounds, job),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """One number that the choice depends on: ``count`` times measured, or believed (``prior``)."""

    name: str
    value: float | None
    unit: str
    count: int
    source: str
    prior: float | None = None


def _inputs(
    grounds: IntervalGrounds, measured: Measured, belief: Belief, job: Job
) -> list[dict[str, Any]]:
    """Return each input with its value, and whether it was measured, how often, or is believed."""
    failures = job.interval.failures
    objects = _times(grounds.object_stall_us / 1e6, grounds.object_count, measured.object_count)
    if not grounds.object_count:
        objects = {**objects, "value": grounds.object_stall_us / 1e6, "source": "guessed"}
    recoveries = failures.restores_count
    found = (
        _Input(name="step", **_times(grounds.step_us / 1e6, grounds.steps_count, 1)),
        _Input(
            name="memory_stall",
            **_times(grounds.memory_stall_us / 1e6, grounds.memory_count, measured.memory_count),
        ),
        _Input(name="object_stall", **objects),
        _Input(
            name="upload",
            **_times(grounds.upload_ms / 1e3, grounds.upload_count, measured.upload_count),
        ),
        _Input(
            name="mtbf",
            value=grounds.mtbf_ms / 1e3,
            unit="s",
            count=failures.failures_count,
            source="measured" if failures.failures_count else "prior",
            prior=belief.mtbf_s,
        ),
        _Input(
            name="memory_lost_share",
            value=grounds.memory_lost_share,
            unit="1",
            count=recoveries,
            source="measured" if recoveries else "prior",
            prior=belief.memory_lost_share,
        ),
        _Input(
            name="object_restores",
            value=failures.object_restores_count,
            unit="recoveries",
            count=recoveries,
            source="measured" if recoveries else "none yet",
        ),
    )
    return [asdict(one) for one in found]


def _times(value_s: float, known_count: int, count: int) -> dict[str, Any]:
    """Return the fields of a time; what only an earlier process has measured says so."""
    source = "measured" if count else "measured before"
    return {
        "value": value_s if known_count else None,
        "unit": "s",
        "count": known_count,
        "source": source if known_count else "unknown",
    }


def _expected_waste(grounds: IntervalGrounds, job: Job) -> dict[str, float]:
    """Return shares of time by cause, to first order; restarts as long as this run's own were."""
    schedule, failures = job.interval.schedule, job.interval.failures
    step_s = grounds.step_us / 1e6
    restart_s = failures.restart_ms / 1e3 / max(failures.restores_count, 1)
    memory_rate, object_rate = policy.failure_rates(grounds)
    found: dict[str, float] = {}
    for name, rate, stall_s, durable_s, steps in (
        ("memory", memory_rate, grounds.memory_stall_us / 1e6, 0.0, schedule.memory_every_steps),
        (
            "object",
            object_rate,
            grounds.object_stall_us / 1e6,
            grounds.upload_ms / 1e3,
            schedule.object_every_steps,
        ),
    ):
        if not steps:
            continue
        tier = Tier(
            failures_per_s=rate,
            stall_s=stall_s,
            durable_after_s=max(durable_s, stall_s),
            restart_s=restart_s,
            interval_s=steps * step_s,
        )
        shares = tier_shares(tier, 0.0)
        found |= {f"{name}_stall": shares.stall, f"{name}_lost_work": shares.lost_work}
        found["restart"] = found.get("restart", 0.0) + shares.restart
    return {**found, "total": sum(found.values())}


def _would_change(grounds: IntervalGrounds, job: Job) -> list[str]:
    """Say in words how far inputs would have to move, one at a time, for another schedule."""
    schedule, step_s = job.interval.schedule, grounds.step_us / 1e6
    said = []
    if grounds.memory_count and policy.is_cheap(grounds, every_step=True):
        limit_ms = policy.EVERY_STEP_SHARE_KEPT * grounds.step_us / 1e3
        said.append(f"memory tier: stays at every step while a snapshot stalls < {limit_ms:.3g} ms")
    objects_s = schedule.object_every_steps * step_s
    stall_s = grounds.object_stall_us / 1e6
    if objects_s and stall_s and grounds.memory_lost_share:
        slack = _slack()
        low_s = objects_s**2 / (2 * stall_s) / slack
        high_s = objects_s**2 / (2 * stall_s) * slack
        share = grounds.memory_lost_share
        said.append(
            f"object tier: stays while the mean time between failures is within about "
            f"{low_s * share / 3600:.3g} and {high_s * share / 3600:.3g} h, other inputs alike"
        )
    if objects_s and grounds.object_count and not stall_s:
        said.append(
            "object tier: stays, as a durable snapshot stalls no more than the others do, within "
            "their scatter"
        )
    if objects_s:
        said.append(f"object tier: grows when uploads usually take longer than {objects_s:.3g} s")
    return said + _by_hand(job)


def _by_hand(job: Job) -> list[str]:
    if job.interval.auto:
        return []
    return ["nothing by itself: a person or the spec has chosen these steps; `--auto` lets go"]


def _slack() -> float:
    """Return by what factor a mean time may be off until a change gains enough.

    An interval that is off by x costs (x + 1/x) / 2 of the optimum, which goes with the root.
    """
    half = 1 / (1 - policy.GAIN_SHARE_MIN)
    return (half + math.sqrt(half**2 - 1)) ** 2
