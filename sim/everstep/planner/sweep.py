"""Plans again and again over a range of one input, or of two.

``restart=30s..600s`` takes nine values, ``restart=30s..600s:5`` five, ``restart=30s,60s,120s``
these. A range over more than two decades is stepped by equal factors, others by equal differences.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.planner.inputs import PARAMETERS, Inputs, changed, option
from everstep.planner.monte_carlo import Progress, simulate
from everstep.planner.plan import P99, Plan, make_plan, spares_at
from everstep.planner.quantities import Dimension
from everstep.planner.statistics import Estimate

VALUES: Final = 9
VALUES_OF_PAIR: Final = 7
VALUES_MAX: Final = 200  # of one input: a plot shows no more
DECADES_OF_FACTORS: Final = 100.0  # largest over smallest from which steps are factors
AXES_MAX: Final = 2
RANGE: Final = re.compile(r"(?P<first>.+?)\.\.(?P<last>[^:]+)(:(?P<count>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One swept input and its values in the base unit, ascending."""

    name: str
    values: tuple[float, ...]

    @property
    def dimension(self) -> Dimension:
        """What it measures."""
        return PARAMETERS[self.name].dimension

    def text(self, value: float) -> str:
        """Return one of the values as a person writes it."""
        return self.dimension.text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One plan of a sweep; ``values`` in the order of the axes."""

    values: tuple[float, ...]
    plan: Plan
    spares: int  # that suffice for the asked quantile
    spares_p99: int
    simulated: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """All plans; the last axis varies fastest."""

    axes: tuple[Axis, ...]
    points: tuple[Point, ...]


def parse_axes(specs: Sequence[str], known: Collection[str] = PARAMETERS) -> tuple[Axis, ...]:
    """Return the axes of one or two specifications.

    Args:
        specs: as given.
        known: which inputs can be swept.

    Raises:
        InvalidInput: with one sentence that says what to write.
    """
    if len(specs) > AXES_MAX:
        raise InvalidInput(f"--sweep takes one input or two, got {len(specs)}")
    count = VALUES if len(specs) == 1 else VALUES_OF_PAIR
    axes = tuple(_axis(spec, count, known) for spec in specs)
    if len({axis.name for axis in axes}) < len(axes):
        raise InvalidInput(f"both sweeps are over {axes[0].name}: name two inputs")
    return axes


def run_sweep(
    inputs: Inputs,
    axes: Sequence[Axis],
    *,
    runs: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Return the plan of every combination of values.

    Args:
        inputs: everything that is not swept.
        axes: one or two.
        runs: of the simulation at each point; 0 for none.
        seed: of the simulations.
        progress: is told points done and in all.

    Raises:
        InvalidInput: when a value makes no sense, naming it.
    """
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    points = []
    for i, values in enumerate(combinations):
        given = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        points.append(_point(inputs, given, runs, seed))
        if progress is not None:
            progress(i + 1, len(combinations))
    return Sweep(axes=tuple(axes), points=tuple(points))


def _point(inputs: Inputs, given: dict[str, float], runs: int, seed: int) -> Point:
    try:
        plan = make_plan(changed(inputs, given))
        simulated = None
        if runs:
            simulated, _ = simulate(
                plan.in_use.policy,
                mtbf_s=plan.mtbf_s,
                useful_target_s=plan.compute_s,
                runs=runs,
                seed=seed,
            )
    except InvalidInput as error:
        where = ", ".join(
            f"{option(name)} {PARAMETERS[name].dimension.text(value)}"
            for name, value in given.items()
        )
        raise InvalidInput(f"at {where}: {error}") from error
    return Point(
        values=tuple(given.values()),
        plan=plan,
        spares=spares_at(plan, plan.inputs.quantile),
        spares_p99=spares_at(plan, P99),
        simulated=simulated,
    )


def _axis(spec: str, count: int, known: Collection[str]) -> Axis:
    key, equals, text = spec.partition("=")
    name = key.strip().lstrip("-").replace("-", "_")
    if not equals or not text.strip():
        raise InvalidInput(
            f"--sweep {spec!r} names no range: write for example restart=30s..600s, "
            "restart=30s..600s:5 or restart=30s,60s,120s"
        )
    if name not in known:
        names = ", ".join(one.replace("_", "-") for one in known)
        raise InvalidInput(f"--sweep cannot vary {key.strip()!r}: one of {names}")
    parse = PARAMETERS[name].dimension.parse
    found = RANGE.fullmatch(text.strip())
    if found is None:
        values = [parse(one) for one in text.split(",")]
        if len(values) > VALUES_MAX:
            raise InvalidInput(
                f"--sweep {key.strip()} lists {len(values)} values: {VALUES_MAX} at most"
            )
    else:
        asked = (found["count"] or str(count)).lstrip("0") or "0"
        count = int(asked[: len(str(VALUES_MAX)) + 1])  # a longer one is too many anyway
        if not 2 <= count <= VALUES_MAX:
            raise InvalidInput(f"--sweep {spec!r} asks for {asked} values: 2 to {VALUES_MAX}")
        values = _spread(spec, parse, (found["first"], found["last"]), count)
        if PARAMETERS[name].whole:  # the ends are as given, or refused
            values = [values[0], *(float(round(value)) for value in values[1:-1]), values[-1]]
    return Axis(name=name, values=tuple(sorted(set(values))))


def _spread(
    spec: str, parse: Callable[[str], float], ends: tuple[str, str], count: int
) -> list[float]:
    """Return values from the first end to the last, in equal steps or by equal factors."""
    first, last = parse(ends[0]), parse(ends[1])
    if not first < last:
        raise InvalidInput(f"--sweep {spec!r} is empty: the first value must be the smaller one")
    parts = [i / (count - 1) for i in range(count)]
    if first > 0 and last / first > DECADES_OF_FACTORS:
        inner = [first * (last / first) ** part for part in parts]
    else:
        inner = [first + (last - first) * part for part in parts]
    return [first, *(float(f"{value:.4g}") for value in inner[1:-1]), last]
