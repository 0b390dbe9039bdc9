"""The plan: everything that follows from the inputs in closed form, and the spares.

``goodput`` is that of the job's own chips under the complete (Poisson) model at the interval in
use: each save counts as durable when its stall is over, which is what copies in host memory give.
The policies beside it say what the object store alone, and both tiers together, would give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core import waste
from everstep.core.errors import InvalidInput
from everstep.planner.inputs import Inputs
from everstep.planner.monte_carlo import Policy
from everstep.planner.quantities import TIME
from everstep.planner.spares import (
    HOSTS_OUT_MAX,
    QUANTILES,
    SpareRow,
    Workshop,
    spare_row,
    spares_needed,
)

FLOPS_A_PARAMETER_AND_TOKEN: Final = 6  # forward 2, backward 4: Kaplan et al., arXiv:2001.08361
DAY_S: Final = 86_400.0
P99: Final = 0.99
GOODPUT_MIN: Final = 1e-6  # below, the run is not slow but impossible


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One way of saving: when, and what the models say.

    ``first_order`` and ``exact`` are wastes; ``None`` where a model does not cover it.
    ``policy`` is what a simulation of it runs.
    """

    name: str
    interval_s: float
    upload_interval_s: float | None = None
    first_order: float | None
    exact: float | None
    policy: Policy

    @property
    def waste(self) -> float:
        """Return the better model's waste, at most all."""
        known = self.first_order if self.exact is None else self.exact
        assert known is not None, "one of the models covers every way of saving"
        return min(known, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareChoice:
    """So many spare hosts: ``quantile`` of the lost hosts find one in time (None: no spares).

    ``goodput`` is the job's with waits for hosts; ``fleet_goodput`` counts the idle spares too.
    """

    quantile: float | None
    row: SpareRow
    goodput: float
    fleet_goodput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What ``everstep plan`` prints; times in seconds, sizes in bytes, shares of 1."""

    inputs: Inputs
    flops: float
    compute_s: float
    mtbf_s: float
    failures_per_day: float
    state_bytes_total: float
    state_bytes_per_chip: float
    copy_s: float
    upload_s: float
    upload_interval_s_min: float
    interval_s: float
    interval_young_s: float
    interval_daly_s: float
    interval_exact_s: float
    interval_verified_s: float | None
    waste_first_order: float
    waste_exact: float
    causes: tuple[tuple[str, float], ...]
    savings: tuple[Saving, ...]
    goodput: float

    @property
    def in_use(self) -> Saving:
        """The way of saving whose goodput is the plan's."""
        return self.savings[0]

    @property
    def wall_s(self) -> float:
        """How long the run takes with failures, if a lost host is replaced at once."""
        return self.compute_s / self.goodput

    @property
    def workshop(self) -> Workshop:
        """How hosts are lost and repaired."""
        return Workshop(
            losses_per_s=self.inputs.host_loss / self.mtbf_s,
            rate_spread=self.inputs.rate_spread,
            repair_s=self.inputs.repair,
            repair_spread=self.inputs.repair_spread,
        )


def make_plan(inputs: Inputs) -> Plan:
    """Return the plan without the spares, which are simulated.

    Raises:
        InvalidInput: when such a run would never end.
    """
    flops = FLOPS_A_PARAMETER_AND_TOKEN * inputs.params * inputs.tokens
    mtbf_s = 3600 * waste.job_mtbf_hours(int(inputs.chips), inputs.chip_mtbf / 3600)
    state = inputs.params * inputs.bytes_per_param
    upload_s = state / inputs.upload_bandwidth
    savings = _savings(inputs, mtbf_s, upload_s)
    in_use = savings[0]
    causes = _causes(inputs, in_use, mtbf_s)
    goodput = dict(causes)["useful"]
    if goodput < GOODPUT_MIN:
        raise InvalidInput(_never_ends(inputs, mtbf_s))
    plan = Plan(
        inputs=inputs,
        flops=flops,
        compute_s=flops / (inputs.chips * inputs.chip_flops * inputs.mfu),
        mtbf_s=mtbf_s,
        failures_per_day=DAY_S / mtbf_s,
        state_bytes_total=state,
        state_bytes_per_chip=state / inputs.chips,
        copy_s=state / inputs.chips / inputs.copy_bandwidth,
        upload_s=upload_s,
        upload_interval_s_min=waste.shortest_interval(upload_s, int(inputs.uploads_at_once)),
        interval_s=in_use.interval_s,
        interval_young_s=waste.optimal_interval(inputs.stall, mtbf_s),
        interval_daly_s=waste.daly_interval(inputs.stall, mtbf_s),
        interval_exact_s=waste.exact_interval(inputs.stall, mtbf_s),
        interval_verified_s=_verified_interval(inputs, mtbf_s),
        waste_first_order=_first_order(inputs, mtbf_s),
        waste_exact=in_use.waste,
        causes=causes,
        savings=savings,
        goodput=goodput,
    )
    if plan.workshop.hosts_out > HOSTS_OUT_MAX:
        raise InvalidInput(
            f"{plan.workshop.hosts_out:,.0f} hosts would be in repair at a time, and "
            f"{HOSTS_OUT_MAX:,.0f} at most are counted: lower --repair or --host-loss, or raise "
            "--chip-mtbf"
        )
    return plan


def _never_ends(inputs: Inputs, mtbf_s: float) -> str:
    """Say what leaves no time for work, and what to change."""
    parts = {
        "a restart": ("--restart", inputs.restart),
        "a detection": ("--detection", inputs.detection),
        "a stall": ("--stall", inputs.stall),
        "an interval": ("--interval", inputs.interval or 0.0),
    }
    what = max(parts, key=lambda one: parts[one][1])
    name, lasts_s = parts[what]
    return (
        f"such a run never ends: a failure every {TIME.text(mtbf_s)} leaves no time for work "
        f"beside {what} of {TIME.text(lasts_s)}; lower {name} or --chips, or raise --chip-mtbf"
    )


def spares_at(plan: Plan, quantile: float) -> int:
    """Return the spares that suffice for so many of the lost hosts within the patience."""
    return spares_needed(plan.workshop, (quantile,), plan.inputs.patience)[0]


def spare_choices(plan: Plan) -> tuple[SpareChoice, ...]:
    """Return what no spares, the usual quantiles and the asked one give, fewest first."""
    shares = tuple(sorted({*QUANTILES, plan.inputs.quantile}))
    needed = spares_needed(plan.workshop, shares, plan.inputs.patience)
    return tuple(
        _choice(plan, share, spares)
        for share, spares in ((None, 0), *zip(shares, needed, strict=True))
    )


def _choice(plan: Plan, share: float | None, spares: int) -> SpareChoice:
    row = spare_row(plan.workshop, spares)
    goodput = plan.goodput * row.training
    return SpareChoice(
        quantile=share,
        row=row,
        goodput=goodput,
        fleet_goodput=waste.fleet_goodput(
            hosts=plan.inputs.hosts, spares=spares, effective_time=goodput
        ),
    )


def _first_order(inputs: Inputs, mtbf_s: float) -> float:
    """Return Young's waste at his interval, or at the asked one."""
    interval_s = inputs.interval or waste.optimal_interval(inputs.stall, mtbf_s)
    return waste.expected_waste(interval_s, inputs.stall, mtbf_s, inputs.restart + inputs.detection)


def _verified_interval(inputs: Inputs, mtbf_s: float) -> float | None:
    if inputs.silent_mtbf is None:
        return None
    return waste.verified_interval(inputs.stall, inputs.verification, inputs.silent_mtbf, mtbf_s)


def _savings(inputs: Inputs, mtbf_s: float, upload_s: float) -> tuple[Saving, ...]:
    """Return the ways of saving, the one in use first."""
    best = _in_memory("complete model", inputs, mtbf_s, waste.exact_interval(inputs.stall, mtbf_s))
    others = (
        _in_memory("Young", inputs, mtbf_s, waste.optimal_interval(inputs.stall, mtbf_s)),
        _in_memory("Daly", inputs, mtbf_s, waste.daly_interval(inputs.stall, mtbf_s)),
        _object_store_only(inputs, mtbf_s, upload_s),
        _two_tiers(inputs, mtbf_s, upload_s),
    )
    if inputs.interval is None:
        return (best, *others)
    return (_in_memory("as given", inputs, mtbf_s, inputs.interval), best, *others)


def _in_memory(name: str, inputs: Inputs, mtbf_s: float, interval_s: float) -> Saving:
    """Return saves that are durable at once."""
    away_s = inputs.restart + inputs.detection
    return Saving(
        name=name,
        interval_s=interval_s,
        first_order=waste.expected_waste(interval_s, inputs.stall, mtbf_s, away_s),
        exact=waste.exact_waste(interval_s, inputs.stall, mtbf_s, away_s),
        policy=Policy(
            interval_s=interval_s,
            stall_s=inputs.stall,
            restart_s=away_s,
            object_restart_s=away_s,
        ),
    )


def _object_store_only(inputs: Inputs, mtbf_s: float, upload_s: float) -> Saving:
    """Return asynchronous saves: every restart loads the last upload that was complete."""
    stall_s = waste.effective_stall(inputs.stall, upload_s, inputs.upload_slowdown)
    shortest_s = waste.shortest_interval(upload_s, int(inputs.uploads_at_once))
    interval_s = inputs.interval or waste.exact_interval(stall_s, mtbf_s)
    interval_s = max(interval_s, shortest_s)
    away_s = _object_restart(inputs, upload_s) + inputs.detection
    durable_s = inputs.stall + upload_s
    undurable_s = max(durable_s - stall_s, 0.0)
    return Saving(
        name="asynchronous",
        interval_s=interval_s,
        first_order=waste.expected_waste(interval_s, stall_s, mtbf_s, away_s + undurable_s),
        exact=waste.asynchronous_waste(
            interval_s, stall_s, mtbf_s, away_s, durable_after_s=durable_s
        ),
        policy=Policy(
            interval_s=interval_s,
            stall_s=stall_s,
            upload_s=undurable_s,
            restart_s=away_s,
            object_restart_s=away_s,
        ),
    )


def _two_tiers(inputs: Inputs, mtbf_s: float, upload_s: float) -> Saving:
    """Return saves to host memory with a rarer one to the object store.

    When no failure restarts from memory there is no memory tier, and nothing stalls for it.
    """
    lost = inputs.memory_loss
    object_stall_s = inputs.stall if inputs.object_stall is None else inputs.object_stall
    durable_s = object_stall_s + upload_s
    object_stall_s = waste.effective_stall(object_stall_s, upload_s, inputs.upload_slowdown)
    # What the upload slows counts as a stall already: only the rest of it is work not durable yet.
    undurable_s = max(durable_s - object_stall_s, 0.0)
    object_restart_s = _object_restart(inputs, upload_s)
    shortest_s = waste.shortest_interval(upload_s, int(inputs.uploads_at_once))
    upload_interval_s = waste.tier_interval(lost / mtbf_s, object_stall_s)
    if lost == 1:
        interval_s = max(inputs.interval or upload_interval_s, shortest_s)
        upload_interval_s = interval_s
    else:
        interval_s = inputs.interval or waste.tier_interval((1 - lost) / mtbf_s, inputs.stall)
        upload_interval_s = max(upload_interval_s, shortest_s, interval_s)
    memory = waste.Tier(
        failures_per_s=(1 - lost) / mtbf_s,
        stall_s=inputs.stall,
        durable_after_s=inputs.stall,
        restart_s=inputs.restart,
        interval_s=interval_s,
    )
    store = waste.Tier(
        failures_per_s=lost / mtbf_s,
        stall_s=object_stall_s,
        durable_after_s=durable_s,
        restart_s=object_restart_s,
        interval_s=upload_interval_s,
    )
    return Saving(
        name="two levels",
        interval_s=interval_s,
        upload_interval_s=upload_interval_s,
        first_order=waste.tiered_waste(
            (store,) if lost == 1 else (memory, store), inputs.detection
        ),
        exact=None,
        policy=Policy(
            interval_s=interval_s,
            stall_s=0.0 if lost == 1 else inputs.stall,
            saves_per_upload=max(1, round(upload_interval_s / interval_s)),
            upload_stall_s=object_stall_s,
            upload_s=undurable_s,
            memory_loss=lost,
            restart_s=inputs.restart + inputs.detection,
            object_restart_s=object_restart_s + inputs.detection,
        ),
    )


def _object_restart(inputs: Inputs, upload_s: float) -> float:
    """Return the restart from the object store; a download takes as long as an upload."""
    if inputs.object_restart is None:
        return inputs.restart + upload_s
    return inputs.object_restart


def _causes(inputs: Inputs, in_use: Saving, mtbf_s: float) -> tuple[tuple[str, float], ...]:
    """Return shares of wall time by cause; they sum to 1.

    In the ledger's words, which has no roll-backs: there they are lost work.
    """
    shares = waste.exact_shares(
        interval_s=in_use.interval_s,
        stall_s=inputs.stall,
        mtbf_s=mtbf_s,
        restart_s=inputs.restart,
        detection_s=inputs.detection,
    )
    fast = shares.useful * (1 - inputs.slow)
    return (
        ("useful", fast * (1 - inputs.replay - inputs.rollback)),
        ("checkpoint_stall", shares.stall),
        ("lost_work", shares.lost_work),
        ("detection", shares.detection),
        ("restart", shares.restart),
        ("straggler", shares.useful * inputs.slow),
        ("verification", fast * inputs.replay),
        ("rollback", fast * inputs.rollback),
    )
