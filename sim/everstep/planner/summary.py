"""A plan as tables for people and as values for programs; the command and the report share it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from everstep.planner.inputs import PARAMETERS, Inputs, as_text, option
from everstep.planner.plan import P99, Plan, Saving, SpareChoice
from everstep.planner.quantities import BYTES, SHARE, TIME
from everstep.planner.statistics import Estimate, quantile
from everstep.planner.sweep import Axis, Point, Sweep

DAY_S: Final = 86_400.0
SMALL: Final = 0.01  # below, a share is written to three digits
CAUSES: Final[Mapping[str, str]] = {
    "useful": "useful steps",
    "checkpoint_stall": "checkpoint stalls",
    "lost_work": "work lost and done again",
    "detection": "detection",
    "restart": "restarts",
    "straggler": "stragglers",
    "verification": "steps run twice as a check",
    "rollback": "roll-backs after loss spikes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table; ``note`` is a sentence below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What simulated runs of one way of saving gave; ``wall_s`` is sorted."""

    saving: Saving
    goodput: Estimate
    wall_s: tuple[float, ...]


def tables(
    plan: Plan, choices: Sequence[SpareChoice], simulated: Sequence[Simulated] = ()
) -> tuple[Table, ...]:
    """Return everything a person reads, the answer first."""
    return (
        _run(plan),
        _causes(plan),
        _savings(plan),
        *((_simulated(plan, simulated),) if simulated else ()),
        _spares(plan, choices),
    )


def inputs_table(inputs: Inputs) -> Table:
    """Return all inputs, the derived ones as such."""
    rows = tuple(
        (option(name), as_text(name, getattr(inputs, name)) or "derived", parameter.help)
        for name, parameter in PARAMETERS.items()
    )
    return Table(title="Inputs", columns=("OPTION", "VALUE", "MEANING"), rows=rows)


def sweep_table(sweep: Sweep) -> Table:
    """Return a line a point, or for two inputs the goodput as a grid."""
    if len(sweep.axes) > 1:
        return _grid(sweep)
    axis = sweep.axes[0]
    simulated = any(point.simulated for point in sweep.points)
    title, first = f"Sweep of {option(axis.name)}", axis.name.upper().replace("_", "-")
    usual = {point.plan.inputs.quantile for point in sweep.points} == {P99}
    spares = "SPARES P99" if usual else "SPARES"
    if len(sweep.points) > 1 and len({point.plan.goodput for point in sweep.points}) == 1:
        return Table(
            title=title,
            columns=(
                first, "GOODPUT", *(("SIMULATED",) if simulated else ()), "ASYNCHRONOUS",
                "TWO LEVELS", spares,
            ),
            rows=tuple(_other_row(axis, point) for point in sweep.points),
            note=f"{option(axis.name)} changes nothing for saves in host memory, whose goodput is "
            "the plan's: beside it is that of the other ways of saving.",
        )  # fmt: skip
    return Table(
        title=title,
        columns=(
            first, "FAILURES/DAY", "INTERVAL", "STALLS", "LOST WORK", "RESTARTS", "GOODPUT",
            *(("SIMULATED",) if simulated else ()), "WALL TIME", spares,
        ),
        rows=tuple(_sweep_row(axis, point) for point in sweep.points),
    )  # fmt: skip


def plan_json(
    plan: Plan, choices: Sequence[SpareChoice], simulated: Sequence[Simulated] = ()
) -> dict[str, Any]:
    """Return the plan for programs: base units, the unit last in each name."""
    two_levels, asynchronous = _way(plan, "two levels"), _way(plan, "asynchronous")
    best = max(choices, key=lambda choice: choice.fleet_goodput)
    asked = next(choice for choice in choices if choice.quantile == plan.inputs.quantile)
    p99 = next(choice for choice in choices if choice.quantile == P99)
    value = {
        "inputs": dataclasses.asdict(plan.inputs),
        "hosts": plan.inputs.hosts,
        "flops": plan.flops,
        "compute_days": plan.compute_s / DAY_S,
        "wall_days": plan.wall_s / DAY_S,
        "failures_per_day": plan.failures_per_day,
        "mtbf_s": plan.mtbf_s,
        "state_bytes_total": plan.state_bytes_total,
        "state_bytes_per_chip": plan.state_bytes_per_chip,
        "copy_s": plan.copy_s,
        "upload_s": plan.upload_s,
        "upload_interval_s_min": plan.upload_interval_s_min,
        "interval_s": plan.interval_s,
        "interval_young_s": plan.interval_young_s,
        "interval_daly_s": plan.interval_daly_s,
        "interval_exact_s": plan.interval_exact_s,
        "interval_asynchronous_s": asynchronous.interval_s,
        "interval_memory_s": two_levels.interval_s,
        "interval_object_s": two_levels.upload_interval_s,
        "interval_verified_s": plan.interval_verified_s,
        "waste_first_order": plan.waste_first_order,
        "waste_exact": plan.waste_exact,
        "waste_asynchronous": asynchronous.waste,
        "waste_two_levels": two_levels.waste,
        "waste_by_cause": dict(plan.causes),
        "goodput": plan.goodput,
        "goodput_with_spares": asked.goodput,
        "goodput_with_spares_counted": asked.fleet_goodput,
        "goodput_without_spares": choices[0].goodput,
        "spares": asked.row.spares,
        "spares_p99": p99.row.spares,
        "spares_best": best.row.spares,
        "spare_choices": [_choice_json(choice) for choice in choices],
    }
    if simulated:
        value["simulated"] = [_simulated_json(plan, one) for one in simulated]
    return value


def sweep_json(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the points of a sweep for programs."""
    return [
        {
            **{axis.name: value for axis, value in zip(sweep.axes, point.values, strict=True)},
            "failures_per_day": point.plan.failures_per_day,
            "interval_s": point.plan.interval_s,
            "waste_by_cause": dict(point.plan.causes),
            "waste_exact": point.plan.waste_exact,
            "goodput": point.plan.goodput,
            "wall_days": point.plan.wall_s / DAY_S,
            "waste_asynchronous": _way(point.plan, "asynchronous").waste,
            "waste_two_levels": _way(point.plan, "two levels").waste,
            "spares": point.spares,
            "spares_p99": point.spares_p99,
            **({"simulated": _estimate_json(point.simulated)} if point.simulated else {}),
        }
        for point in sweep.points
    ]


def percent(share: float) -> str:
    """Return a share to a hundredth of a percent, which is minutes of a long run, or finer."""
    return f"{100 * share:.3g} %" if 0 < share < SMALL else f"{100 * share:.2f} %"


def _run(plan: Plan) -> Table:
    inputs = plan.inputs
    minute = 60 * plan.failures_per_day
    rows = [
        ("goodput", percent(plan.goodput), "of the chips that train, at the interval in use"),
        ("compute", TIME.text(plan.compute_s), f"{plan.flops:.3g} FLOPs without any failure"),
        ("wall time", TIME.text(plan.wall_s), f"1 % of goodput is {TIME.text(plan.wall_s / 100)}"),
        (
            "failures", f"{plan.failures_per_day:.3g} a day",
            f"one in {TIME.text(plan.mtbf_s)}; a minute of restart costs {TIME.text(minute)} a day",
        ),
        (
            "state", BYTES.text(plan.state_bytes_total),
            f"{BYTES.text(plan.state_bytes_per_chip)} a chip",
        ),
        ("copy to host memory", TIME.text(plan.copy_s), "of each save, without coordination"),
        (
            "upload", TIME.text(plan.upload_s),
            f"in the background; {TIME.text(plan.upload_interval_s_min)} apart at least",
        ),
        (
            "interval in use", TIME.text(plan.interval_s),
            "longer than the run: nothing is ever saved" if plan.interval_s > plan.compute_s
            else f"stall {TIME.text(inputs.stall)} each",
        ),
    ]  # fmt: skip
    if plan.interval_verified_s is not None:
        rows.append(
            (
                "interval, verified", TIME.text(plan.interval_verified_s),
                "best where each save is verified against silent corruption first",
            )
        )  # fmt: skip
    return Table(title="The run", columns=("WHAT", "VALUE", ""), rows=tuple(rows))


def _causes(plan: Plan) -> Table:
    rows = tuple(
        (CAUSES[cause], percent(share), TIME.text(share * plan.wall_s))
        for cause, share in plan.causes
        if share > 0
    )
    return Table(
        title="Where the wall time goes",
        columns=("CAUSE", "SHARE", "IN ALL"),
        rows=rows,
        note=f"First-order waste (Young): {percent(plan.waste_first_order)}; "
        f"complete model: {percent(plan.waste_exact)}.",
    )


def _savings(plan: Plan) -> Table:
    rows = tuple(
        (
            saving.name,
            TIME.text(saving.interval_s),
            "-" if saving.upload_interval_s is None else TIME.text(saving.upload_interval_s),
            "-" if saving.first_order is None else percent(min(saving.first_order, 1.0)),
            "-" if saving.exact is None else percent(saving.exact),
        )
        for saving in plan.savings
    )
    inputs = plan.inputs
    return Table(
        title="How often to save",
        columns=("MODEL", "INTERVAL", "OBJECT STORE", "WASTE, FIRST ORDER", "WASTE, COMPLETE"),
        rows=rows,
        note="The first line is in use. asynchronous: no copy in host memory, restarts load the "
        "last complete upload. two levels: "
        f"{SHARE.text(inputs.memory_loss)} of the failures fall back to the object store.",
    )


def _simulated(plan: Plan, simulated: Sequence[Simulated]) -> Table:
    rows = tuple(
        (
            one.saving.name,
            percent(1 - one.saving.waste),
            f"{percent(one.goodput.mean)} (95 %: {_bounds(one.goodput)})",
            _wall(one.wall_s),
        )
        for one in simulated
    )
    other = 1 - dict(plan.causes)["useful"] / (1 - plan.waste_exact)
    note = f"{simulated[0].goodput.runs} runs each, Poisson failures."
    if other > 0:
        note += " Failures only: stragglers, replays and roll-backs come on top."
    return Table(
        title="Simulated",
        columns=("MODEL", "GOODPUT, FORMULA", "GOODPUT, SIMULATED", "WALL TIME"),
        rows=rows,
        note=note,
    )


def _spares(plan: Plan, choices: Sequence[SpareChoice]) -> Table:
    inputs = plan.inputs
    rows = tuple(
        (
            "none" if choice.quantile is None else f"{100 * choice.quantile:.10g} %",
            str(choice.row.spares),
            f"{100 * choice.row.spares / inputs.hosts:.1f} %",
            percent(choice.row.enough),
            TIME.text(choice.row.wait_s),
            percent(choice.goodput),
            percent(choice.fleet_goodput),
        )
        for choice in choices
    )
    rate = (
        "failures are Poisson"
        if inputs.rate_spread == 0
        else f"the failure rate varies by {SHARE.text(inputs.rate_spread)} from day to day"
    )
    return Table(
        title="Spare hosts",
        columns=(
            "SUFFICE FOR", "SPARES", "OF HOSTS", "AT ONCE", "MEAN WAIT", "GOODPUT",
            "WITH IDLE SPARES",
        ),
        rows=rows,
        note=f"Simulated: {SHARE.text(inputs.host_loss)} of the failures take a host out, repairs "
        f"are log-normal with mean {TIME.text(inputs.repair)} and sigma {inputs.repair_spread:g}, "
        f"{rate}; a restart may wait {TIME.text(inputs.patience)} for a spare.",
    )  # fmt: skip


def _wall(ordered_s: Sequence[float]) -> str:
    low, middle, high = (TIME.text(quantile(ordered_s, share)) for share in (0.05, 0.5, 0.95))
    return f"{middle} (90 % of runs: {low} to {high})"


def _bounds(one: Estimate) -> str:
    return f"{percent(one.low)} to {percent(one.high)}"


def _sweep_row(axis: Axis, point: Point) -> tuple[str, ...]:
    plan, shares = point.plan, dict(point.plan.causes)
    return (
        axis.text(point.values[0]),
        f"{plan.failures_per_day:.3g}",
        TIME.text(plan.interval_s),
        percent(shares["checkpoint_stall"]),
        percent(shares["lost_work"]),
        percent(shares["restart"] + shares["detection"]),
        percent(plan.goodput),
        *((_bounds(point.simulated),) if point.simulated else ()),
        TIME.text(plan.wall_s),
        str(point.spares),
    )


def _other_row(axis: Axis, point: Point) -> tuple[str, ...]:
    return (
        axis.text(point.values[0]),
        percent(point.plan.goodput),
        *((_bounds(point.simulated),) if point.simulated else ()),
        percent(1 - _way(point.plan, "asynchronous").waste),
        percent(1 - _way(point.plan, "two levels").waste),
        str(point.spares),
    )


def _way(plan: Plan, name: str) -> Saving:
    return next(saving for saving in plan.savings if saving.name == name)


def _grid(sweep: Sweep) -> Table:
    first, second = sweep.axes
    width = len(second.values)
    return Table(
        title=f"Goodput by {option(first.name)} (down) and {option(second.name)} (across)",
        columns=("", *(second.text(value) for value in second.values)),
        rows=tuple(
            (
                first.text(value),
                *(
                    percent(point.plan.goodput)
                    for point in sweep.points[i * width : (i + 1) * width]
                ),
            )
            for i, value in enumerate(first.values)
        ),
    )


def _choice_json(choice: SpareChoice) -> dict[str, Any]:
    return {
        "quantile": choice.quantile,
        "spares": choice.row.spares,
        "at_once": choice.row.enough,
        "wait_s": choice.row.wait_s,
        "goodput": choice.goodput,
        "goodput_with_spares_counted": choice.fleet_goodput,
    }


def _simulated_json(plan: Plan, one: Simulated) -> dict[str, Any]:
    return {
        "model": one.saving.name,
        "goodput_formula": 1 - one.saving.waste,
        "goodput": _estimate_json(one.goodput),
        "wall_days_p05": quantile(one.wall_s, 0.05) / DAY_S,
        "wall_days_p50": quantile(one.wall_s, 0.5) / DAY_S,
        "wall_days_p95": quantile(one.wall_s, 0.95) / DAY_S,
        "compute_days": plan.compute_s / DAY_S,
    }


def _estimate_json(one: Estimate) -> dict[str, Any]:
    return {"mean": one.mean, "low": one.low, "high": one.high, "runs": one.runs}
