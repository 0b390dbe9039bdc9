"""Decides how many steps lie between two snapshots of each tier, from what the run has shown.

Two tiers, two intervals: each is a single-level problem with its own share of the failures (Benoit
et al. 2017; formulas and sources in ``core/waste``). What was measured speaks for itself as soon as
it is there; how often a job fails starts from the spec's belief and moves with its own failures.

The optimum is flat, so a change must be worth an event: what it saves has a relative and an
absolute floor. Rejected: following the optimum with every measurement (a change a minute for
nothing), and a fixed time between changes (late after the first failures, when it matters most).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.controller.commands import Measured
from everstep.controller.events import IntervalChanged, IntervalGrounds
from everstep.controller.failures import FailureRecord
from everstep.core.schedule import Schedule
from everstep.core.spec import EVERY_STEPS_MAX, JobSpec
from everstep.core.waste import (
    best_tier_interval,
    cadence_waste,
    costs_less,
    job_mtbf_hours,
    posterior_mtbf,
    posterior_share,
    shortest_interval,
)

# The belief about the failure rate weighs as much as two failures of the run's own: a relative
# spread of 0.7. Published fleets differ by about that much: 30,000 and 82,000 h a chip in two
# clusters of one owner (arXiv:2410.21680), 50,000 h at Llama 3's (arXiv:2407.21783).
PRIOR_FAILURES: Final = 2.0
# The belief about lost memory tiers weighs as much as one such loss, which is 1 / share recoveries:
# the first loss halves the distance to what the run shows. At most 50 recoveries, for small shares.
PRIOR_LOSSES: Final = 1.0
PRIOR_RECOVERIES_MAX: Final = 50.0

EVERY_STEP_SHARE_MAX: Final = 0.01  # a memory tier that is cheaper is taken every step (DESIGN 11)
# One that is taken every step stays so up to here: stalls of small steps scatter by a quarter.
EVERY_STEP_SHARE_KEPT: Final = 0.0125

# A change must save a twentieth of what the tier costs: an interval may be off by a factor of 1.38
# until then, which a mean time between failures or a stall that is off by 1.9 leads to; and it must
# save a second a day: less is not worth an event and a look by a person.
GAIN_SHARE_MIN: Final = 0.05
GAIN_MIN: Final = 1e-5

# A failure that the memory tier survives costs half its interval, in which every host has worked:
# at least a snapshot a minute, unless that would cost more than a thousandth. A job that is small,
# or has not failed yet, would otherwise go for hours without one.
MEMORY_INTERVAL_S_MAX: Final = 60.0
MEMORY_SHARE_MIN: Final = 1e-3

# A checkpoint is also what people go back to, after a loss spike or a mistake, which no failure
# rate knows: at least one an hour, unless an hourly one would cost more than a thousandth.
OBJECT_INTERVAL_S_MAX: Final = 3_600.0
OBJECT_SHARE_MIN: Final = 1e-3
# Past these bounds by a tenth, an interval is changed whatever that gains: less is scatter.
BOUND_SLACK: Final = 1.1
# The first one of a job whose spec asks for none: soon, because only it shows what one costs.
OBJECT_FIRST_S: Final = 300.0

# The ranks' sum carries it as a float, exact up to 2^53; a billion steps are longer than any run.
STEPS_MAX: Final = EVERY_STEPS_MAX

UPLOADS_AT_ONCE: Final = 1  # one durable slot a rank
STEPS_MEASURED_MIN: Final = 8  # medians of fewer steps are the first ones' warm-up


class IntervalReason(StrEnum):
    """Why a schedule was changed."""

    FIRST_MEASURED = "first_measured"  # until now the spec's, or a person's, held
    UPLOAD_TIME = "upload_time"  # uploads take longer than the interval
    EVERY_STEP = "every_step"  # the memory tier has become cheap enough for every step
    FAILURES = "failures"  # failures, or what they took, differ from what was believed
    COSTS = "costs"  # stalls or steps take another time than before
    BY_REQUEST = "by_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What failures are believed to do before the run has shown it."""

    mtbf_s: float
    memory_lost_share: float

    @property
    def recoveries(self) -> float:
        """How many recoveries the share weighs as much as."""
        if not self.memory_lost_share:
            return PRIOR_RECOVERIES_MAX
        return min(PRIOR_LOSSES / self.memory_lost_share, PRIOR_RECOVERIES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best schedule for some grounds, and what it and the present one cost a share of time."""

    memory_every_steps: int
    object_every_steps: int
    waste_before: float
    waste_after: float
    uploads_pile_up: bool


def belief_of(spec: JobSpec) -> Belief:
    """Return what the job's spec believes of its failures."""
    prior = spec.checkpoint.failures
    mtbf_h = job_mtbf_hours(spec.layout.world_size, prior.chip_mtbf_hours)
    return Belief(mtbf_s=mtbf_h * 3_600, memory_lost_share=prior.memory_lost_share)


def grounds_for(
    measured: Measured,
    failures: FailureRecord,
    belief: Belief,
    last: IntervalGrounds | None,
    *,
    at_ms: int,
) -> IntervalGrounds:
    """Bring together what is known.

    What was not measured yet, for instance because the controller is new, is what the last decision
    went by; and before the first one a durable snapshot is guessed to stall as long as one into
    memory does: it is the same copy.
    """
    known = last or IntervalGrounds()
    object_stall_us = known.object_stall_us if known.object_count else measured.memory_stall_us
    restores = failures.restores_count
    mtbf_s = posterior_mtbf(
        belief.mtbf_s, PRIOR_FAILURES, failures.failures_count, failures.ran_ms(at_ms) / 1e3
    )
    lost_share = posterior_share(
        belief.memory_lost_share, belief.recoveries, failures.object_restores_count, restores
    )
    own_object, own_upload = measured.object_count > 0, measured.upload_count > 0
    own_memory = measured.memory_count > 0
    return IntervalGrounds(
        step_us=measured.step_us,
        steps_count=measured.steps_count,
        memory_stall_us=measured.memory_stall_us if own_memory else known.memory_stall_us,
        memory_count=measured.memory_count if own_memory else known.memory_count,
        object_stall_us=measured.object_stall_us if own_object else object_stall_us,
        object_count=measured.object_count if own_object else known.object_count,
        upload_ms=measured.upload_ms if own_upload else known.upload_ms,
        upload_ms_max=measured.upload_ms_max if own_upload else known.upload_ms_max,
        upload_count=measured.upload_count if own_upload else known.upload_count,
        mtbf_ms=max(round(mtbf_s * 1e3), 1),
        failures_count=failures.failures_count,
        running_ms=failures.ran_ms(at_ms),
        memory_lost_share=lost_share,
        memory_restores_count=failures.memory_restores_count,
        object_restores_count=failures.object_restores_count,
    )


def choose(grounds: IntervalGrounds, present: Schedule) -> Choice:
    """Return the best schedule; where it would not gain enough, the present one of that tier."""
    memory_rate, object_rate = failure_rates(grounds)
    step_s, object_s = grounds.step_us / 1e6, present.object_every_steps * grounds.step_us / 1e6
    piles_up = 0 < object_s < shortest_interval(grounds.upload_ms / 1e3, UPLOADS_AT_ONCE)
    objects = best_object_steps(grounds, present)
    if not piles_up and object_s <= BOUND_SLACK * longest_object_s(grounds):
        stall_s = grounds.object_stall_us / 1e6
        objects = _worth_it(objects, present.object_every_steps, step_s, stall_s, object_rate)
    memory = present.memory_every_steps
    if grounds.memory_count:
        stall_s = grounds.memory_stall_us / 1e6
        best = best_memory_steps(grounds, every_step=memory == 1)
        cheap = is_cheap(grounds, every_step=memory == 1)
        late = memory * step_s > BOUND_SLACK * longest_memory_s(grounds)
        memory = best if cheap or late else _worth_it(best, memory, step_s, stall_s, memory_rate)
    objects = min(objects, STEPS_MAX)
    memory = min(memory, objects)
    return Choice(
        memory_every_steps=memory,
        object_every_steps=objects,
        waste_before=schedule_waste(
            grounds, present.memory_every_steps, present.object_every_steps
        ),
        waste_after=schedule_waste(grounds, memory, objects),
        uploads_pile_up=piles_up,
    )


def failure_rates(grounds: IntervalGrounds) -> tuple[float, float]:
    """Return failures a second that restart from the memory tier, and from the object store."""
    rate = 1e3 / grounds.mtbf_ms
    return rate * (1 - grounds.memory_lost_share), rate * grounds.memory_lost_share


def best_memory_steps(grounds: IntervalGrounds, *, every_step: bool) -> int:
    """Return the memory tier's best interval [steps]; ``every_step``: it is taken so already."""
    if is_cheap(grounds, every_step=every_step):
        return 1
    step_s, stall_s = grounds.step_us / 1e6, grounds.memory_stall_us / 1e6
    rate, _ = failure_rates(grounds)
    return _steps(min(best_tier_interval(rate, stall_s), longest_memory_s(grounds)), step_s)


def is_cheap(grounds: IntervalGrounds, *, every_step: bool) -> bool:
    """Say whether the memory tier costs so little that every step is right for any failure rate."""
    share = EVERY_STEP_SHARE_KEPT if every_step else EVERY_STEP_SHARE_MAX
    return costs_less(grounds.memory_stall_us / 1e6, grounds.step_us / 1e6, share)


def longest_memory_s(grounds: IntervalGrounds) -> float:
    """Return how far apart snapshots may be [s], however seldom failures need one."""
    return max(MEMORY_INTERVAL_S_MAX, grounds.memory_stall_us / 1e6 / MEMORY_SHARE_MIN)


def longest_object_s(grounds: IntervalGrounds) -> float:
    """Return how far apart checkpoints may be [s], however seldom failures need one."""
    return max(OBJECT_INTERVAL_S_MAX, grounds.object_stall_us / 1e6 / OBJECT_SHARE_MIN)


def best_object_steps(grounds: IntervalGrounds, present: Schedule) -> int:
    """Return the object tier's best interval [steps], at least as long as the longest upload.

    Until an upload was seen to end it stays as it is: only uploads show what one costs and whether
    they would pile up. A job that would have none soon gets one soon.
    """
    step_s, stall_s = grounds.step_us / 1e6, grounds.object_stall_us / 1e6
    _, rate = failure_rates(grounds)
    interval_s = min(best_tier_interval(rate, stall_s), longest_object_s(grounds))
    best = _steps(interval_s, step_s)
    if not grounds.upload_count:
        soon = 0 < present.object_every_steps * step_s <= BOUND_SLACK * longest_object_s(grounds)
        return present.object_every_steps if soon else _steps(OBJECT_FIRST_S, step_s)
    uploaded_s = shortest_interval(grounds.upload_ms_max / 1e3, UPLOADS_AT_ONCE)
    return max(best, math.ceil(uploaded_s / step_s))


def tier_waste(steps: int, step_s: float, stall_s: float, rate: float) -> float:
    """Return what a tier costs a share of time, with ``steps`` between saves (0: none)."""
    return cadence_waste(steps * step_s if steps else math.inf, stall_s, rate)


def schedule_waste(grounds: IntervalGrounds, memory_steps: int, object_steps: int) -> float:
    """Return what both tiers cost a share of time; 1 where there would be no time left."""
    step_s, rates = grounds.step_us / 1e6, failure_rates(grounds)
    memory = tier_waste(memory_steps, step_s, grounds.memory_stall_us / 1e6, rates[0])
    objects = tier_waste(object_steps, step_s, grounds.object_stall_us / 1e6, rates[1])
    return min(memory + objects, 1.0)


def reason_for(
    choice: Choice, present: Schedule, grounds: IntervalGrounds, last: IntervalChanged | None
) -> IntervalReason:
    """Say what the change is down to: the input that has moved the optimum most."""
    if last is None or last.reason == IntervalReason.BY_REQUEST:
        return IntervalReason.FIRST_MEASURED
    if choice.uploads_pile_up:
        return IntervalReason.UPLOAD_TIME
    objects_stay = choice.object_every_steps == present.object_every_steps
    if choice.memory_every_steps == 1 and objects_stay:
        return IntervalReason.EVERY_STEP
    before = last.grounds
    failures = max(
        _moved(new, old)
        for new, old in zip(failure_rates(grounds), failure_rates(before), strict=True)
    )
    costs = max(
        _moved(grounds.memory_stall_us, before.memory_stall_us),
        _moved(grounds.object_stall_us, before.object_stall_us),
    )
    return IntervalReason.FAILURES if failures >= costs else IntervalReason.COSTS


def _worth_it(best: int, present: int, step_s: float, stall_s: float, rate: float) -> int:
    """Return ``best`` if it gains enough over ``present``, else ``present``."""
    if not present:
        return best
    now = tier_waste(present, step_s, stall_s, rate)
    gain = now - tier_waste(best, step_s, stall_s, rate)
    return best if gain >= max(GAIN_SHARE_MIN * now, GAIN_MIN) else present


def _steps(interval_s: float, step_s: float) -> int:
    return max(round(interval_s / step_s), 1)


def _moved(new: float, old: float) -> float:
    """Return by how much a value has changed, as a ratio's logarithm."""
    if new == old:
        return 0.0
    return abs(math.log(new / old)) if new > 0 and old > 0 else math.inf
