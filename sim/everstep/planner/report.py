"""Draws a plan: ``plan.png``, ``sweep.png`` and one self-contained ``report.html``.

matplotlib draws and jinja2 fills the page; both are the optional extra ``plan``. The page embeds
its images, so that it can be mailed. Figures are made without pyplot: no display, no global state.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from everstep.core import waste
from everstep.core.errors import NotFoundError
from everstep.planner.inputs import option
from everstep.planner.plan import Plan, SpareChoice
from everstep.planner.quantities import TIME
from everstep.planner.summary import (
    CAUSES,
    Simulated,
    Table,
    inputs_table,
    percent,
    sweep_table,
    tables,
)
from everstep.planner.sweep import Axis, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH: Final = 120
CURVE_POINTS: Final = 200
CURVE_FACTOR: Final = 10.0  # the curve runs from a tenth of the best interval to ten times it
LOG_FACTOR: Final = 20.0  # a swept range this wide is drawn on a logarithmic axis
COLOURS: Final = {
    "checkpoint_stall": "#4c78a8",
    "lost_work": "#f58518",
    "detection": "#b279a2",
    "restart": "#e45756",
    "straggler": "#72b7b2",
    "verification": "#54a24b",
    "rollback": "#9d755d",
}
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff }
table { border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd;
  vertical-align: top; font-variant-numeric: tabular-nums }
th { font-size: .8rem; color: #555 }
img { max-width: 100%; height: auto }
.note { color: #555; max-width: 48rem }
</style></head><body>
<h1>{{ title }}</h1>
<p class="note">{{ lead }}</p>
{% for image in images %}<p><img alt="{{ image.alt }}"
 src="data:image/png;base64,{{ image.data }}"></p>
{% endfor %}{% for table in tables %}<h2>{{ table.title }}</h2>
<table><thead><tr>{% for column in table.columns %}<th>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in table.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table>
{% if table.note %}<p class="note">{{ table.note }}</p>{% endif %}
{% endfor %}</body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A drawn figure: its file's name, what it shows, the PNG's bytes."""

    name: str
    alt: str
    png: bytes


def require_drawing() -> None:
    """Find out before any work whether reports can be made.

    Raises:
        NotFoundError: when the extra is not installed.
    """
    try:
        import jinja2  # noqa: F401  # only whether it is there
        import matplotlib.figure  # noqa: F401  # only whether it is there
    except ModuleNotFoundError as error:
        raise NotFoundError(
            f"plots and reports need {error.name}, which is not installed: "
            "pip install 'everstep[plan]'"
        ) from error


def write_report(
    folder: Path,
    title: str,
    plan: Plan,
    choices: Sequence[SpareChoice],
    *,
    simulated: Sequence[Simulated] = (),
    sweep: Sweep | None = None,
) -> tuple[Path, ...]:
    """Write the images and the page into a folder, which is made; return their paths."""
    images = [draw_plan(plan, choices, simulated)]
    shown = list(tables(plan, choices, simulated))
    if sweep is not None:
        images.insert(0, draw_sweep(sweep))
        shown.insert(0, sweep_table(sweep))
    page = _page(title, plan, images, (*shown, inputs_table(plan.inputs)))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for image in images:
        written.append(folder / image.name)
        written[-1].write_bytes(image.png)
    written.append(folder / "report.html")
    written[-1].write_text(page, encoding="utf-8")
    return tuple(written)


def draw_plan(
    plan: Plan, choices: Sequence[SpareChoice], simulated: Sequence[Simulated] = ()
) -> Image:
    """Draw waste over the interval, waste by cause, and goodput over spares."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_interval(left, plan, simulated)
    _draw_causes(middle, plan)
    _draw_spares(right, choices)
    return _image(figure, "plan.png", "Waste by interval and by cause, goodput by spares")


def draw_sweep(sweep: Sweep) -> Image:
    """Draw goodput and waste by cause over one input, or goodput over two."""
    from matplotlib.figure import Figure

    names = " and ".join(option(axis.name) for axis in sweep.axes)
    if len(sweep.axes) > 1:
        figure = Figure(figsize=(8.5, 6), layout="constrained")
        _draw_grid(figure, sweep)
    else:
        figure = Figure(figsize=(13, 4.2), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _draw_goodput(left, sweep)
        _draw_stack(middle, sweep)
        _draw_needed(right, sweep)
    return _image(figure, "sweep.png", f"Sweep of {names}")


def _draw_interval(axes: Axes, plan: Plan, simulated: Sequence[Simulated]) -> None:
    inputs, best_s = plan.inputs, plan.interval_exact_s
    low_s, high_s = best_s / CURVE_FACTOR, best_s * CURVE_FACTOR
    xs = [low_s * (high_s / low_s) ** (i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS)]
    away_s = inputs.restart + inputs.detection
    args = (inputs.stall, plan.mtbf_s, away_s)
    first = [100 * min(waste.expected_waste(x, *args), 1.0) for x in xs]
    axes.semilogx(xs, first, "--", color="#888", label="first order")
    axes.semilogx(
        xs, [100 * waste.exact_waste(x, *args) for x in xs], color="#1a1a1a", label="complete"
    )
    used = 100 * waste.exact_waste(plan.interval_s, *args)
    axes.plot([plan.interval_s], [used], "o", color="#e45756", label=TIME.text(plan.interval_s))
    for one in simulated[:1]:  # the way of saving that is in use
        axes.errorbar(
            [plan.interval_s], [100 * (1 - one.goodput.mean)], yerr=[100 * one.goodput.margin],
            fmt="none", ecolor="#4c78a8", capsize=6, label="simulated, 95 %",
        )  # fmt: skip
    axes.set(title="Waste by interval", xlabel="interval, s", ylabel="waste, %", ylim=(0, None))
    axes.legend(frameon=False)


def _draw_causes(axes: Axes, plan: Plan) -> None:
    shares = [(cause, 100 * share) for cause, share in plan.causes if cause in COLOURS and share]
    names = [CAUSES[cause] for cause, _ in shares]
    bars = axes.barh(
        names, [share for _, share in shares], color=[COLOURS[cause] for cause, _ in shares]
    )
    axes.bar_label(bars, fmt="%.2f %%", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set(title=f"Waste by cause: {percent(1 - plan.goodput)}", xlabel="share of wall time, %")


def _draw_spares(axes: Axes, choices: Sequence[SpareChoice]) -> None:
    choices = [choice for choice in choices if choice.quantile is not None]  # none: off the scale
    xs = [choice.row.spares for choice in choices]
    axes.plot(xs, [100 * choice.goodput for choice in choices], "o-", label="of the job")
    axes.plot(
        xs, [100 * choice.fleet_goodput for choice in choices], "s--", label="with idle spares"
    )
    axes.set(title="Goodput by spare hosts", xlabel="spare hosts", ylabel="goodput, %")
    axes.legend(frameon=False)


def _draw_goodput(axes: Axes, sweep: Sweep) -> None:
    axis, points = sweep.axes[0], sweep.points
    xs, unit = _scaled(axis)
    axes.plot(xs, [100 * point.plan.goodput for point in points], color="#1a1a1a", label="formula")
    runs = [(x, point.simulated) for x, point in zip(xs, points, strict=True) if point.simulated]
    if runs:
        axes.errorbar(
            [x for x, _ in runs], [100 * one.mean for _, one in runs],
            yerr=[100 * one.margin for _, one in runs], fmt=".", capsize=3, label="simulated, 95 %",
        )  # fmt: skip
        axes.legend(frameon=False)
    axes.set(title="Goodput", ylabel="goodput, %")
    _label(axes, axis, unit)


def _draw_stack(axes: Axes, sweep: Sweep) -> None:
    axis = sweep.axes[0]
    xs, unit = _scaled(axis)
    shares = [dict(point.plan.causes) for point in sweep.points]
    causes = [cause for cause in COLOURS if any(one[cause] for one in shares)]
    axes.stackplot(
        xs, *([100 * one[cause] for one in shares] for cause in causes),
        labels=[CAUSES[cause] for cause in causes], colors=[COLOURS[cause] for cause in causes],
    )  # fmt: skip
    axes.set(title="Waste by cause", ylabel="share of wall time, %")
    axes.legend(frameon=False, loc="upper left")
    _label(axes, axis, unit)


def _draw_needed(axes: Axes, sweep: Sweep) -> None:
    axis = sweep.axes[0]
    xs, unit = _scaled(axis)
    axes.step(xs, [point.spares_p99 for point in sweep.points], where="mid", color="#54a24b")
    axes.set(title="Spares, 99 %", ylabel="hosts", ylim=(0, None))
    _label(axes, axis, unit)


def _draw_grid(figure: Figure, sweep: Sweep) -> None:
    first, second = sweep.axes
    width = len(second.values)
    goodput = [100 * point.plan.goodput for point in sweep.points]
    rows = [goodput[i : i + width] for i in range(0, len(goodput), width)]
    axes = figure.subplots()
    shown = axes.imshow(rows, aspect="auto", cmap="viridis", origin="lower")
    middle = (min(goodput) + max(goodput)) / 2
    if len(goodput) <= 100:  # more cells than that are too small for a number
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                colour = "white" if value < middle else "black"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(width), [second.text(v) for v in second.values], rotation=30)
    axes.set_yticks(range(len(first.values)), [first.text(v) for v in first.values])
    axes.set(title="Goodput, %", xlabel=option(second.name), ylabel=option(first.name))
    figure.colorbar(shown, ax=axes)


def _scaled(axis: Axis) -> tuple[list[float], str]:
    """Return the values in the unit that suits the largest, and that unit."""
    unit = axis.text(axis.values[-1]).rpartition(" ")[2]
    factor = axis.dimension.units.get(unit)
    if factor is None:
        return list(axis.values), ""
    return [value / factor for value in axis.values], unit


def _label(axes: Axes, axis: Axis, unit: str) -> None:
    axes.set_xlabel(f"{option(axis.name)}, {unit}" if unit else option(axis.name))
    if axis.values[0] > 0 and axis.values[-1] / axis.values[0] > LOG_FACTOR:
        axes.set_xscale("log")


def _image(figure: Figure, name: str, alt: str) -> Image:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    return Image(name=name, alt=alt, png=buffer.getvalue())


def _page(title: str, plan: Plan, images: Sequence[Image], shown: Sequence[Table]) -> str:
    import jinja2

    lead = (
        f"{percent(plan.goodput)} goodput: {TIME.text(plan.compute_s)} of compute take "
        f"{TIME.text(plan.wall_s)} with {plan.failures_per_day:.3g} failures a day."
    )
    embedded: list[dict[str, Any]] = [
        {"alt": image.alt, "data": base64.b64encode(image.png).decode()} for image in images
    ]
    template = jinja2.Environment(autoescape=True).from_string(PAGE)
    return template.render(title=title, lead=lead, images=embedded, tables=shown)
