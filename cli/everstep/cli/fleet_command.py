"""``sim fleet``: weeks of a whole fleet, from event to event, with the services' own decisions."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from everstep.cli.late import Late
from everstep.cli.options import JsonFlag
from everstep.cli.output import OUT, duration, print_json, print_table
from everstep.core.errors import InvalidInput

if TYPE_CHECKING:
    from everstep.fleet.many import SeedResult, SeedRun

SCENARIO: Final = "llama3"
DAYS_DEFAULT: Final = 64  # of the project's target
DAYS_MIN: Final = 0.001  # a minute and a half
DAYS_MAX: Final = 3_650.0  # ten years
SEEDS_MAX: Final = 100_000  # chosen, not measured: a list of them is kept in memory


def fleet(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO",
            help=f"Names (--list) or paths that end in .toml; {SCENARIO} if there is none.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all chance; the first one.")] = 1,
    seeds: Annotated[
        int,
        typer.Option("-n", "--seeds", min=1, max=SEEDS_MAX, help="So many seeds, from --seed on."),
    ] = 1,
    days: Annotated[float, typer.Option(help="How long, in simulated days.")] = DAYS_DEFAULT,
    processes: Annotated[int, typer.Option(min=0, help="At once; 0: one a core.")] = 0,
    trace: Annotated[
        Path | None, typer.Option(help="Write every event of the one run to this file.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the named scenarios.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Simulate weeks of a whole fleet.

    What a policy, a restart time or a spare is worth.

    Thousands of hosts, from event to event, under the services' own decisions. Says where the
    time went. What must hold is checked after every event, and the job must train at the end: the
    exit code is 1 if a seed fails, and each failure comes with the command that replays it.

    Examples:
      everstep sim fleet --list
      everstep sim fleet --days 8
      everstep sim fleet lanl-18 lanl-20 --seeds 3 --json
      everstep sim fleet small --seed 4 --days 3 --trace trace.txt
      everstep sim fleet my-fleet.toml --seeds 20
    """
    if listing:
        _list(as_json=as_json)
        return
    chosen = _runs(scenarios or [SCENARIO], range(seed, seed + seeds), days)
    if trace is not None and len(chosen) > 1:
        raise InvalidInput(f"--trace is of one seed of one scenario: {len(chosen)} were asked for")
    results = _run(chosen, processes, trace)
    failed = [result for result in results if result.outcome is None]
    if as_json:
        print_json(_document(results))
    else:
        _report(results)
        for result in failed:
            OUT.print(f"{result.run.named}: seed {result.run.seed} fails:", markup=False)
            OUT.print(f"  {result.failure}\n  replay: {_replay(result.run)}", markup=False)
    if failed:
        raise typer.Exit(1)


def _list(*, as_json: bool) -> None:
    from everstep.fleet.scenario import named  # imported late, as in sim_commands

    known = named()
    if as_json:
        print_json([{"name": one.name, "about": one.about} for one in known])
    else:
        rows = [(one.name, one.about) for one in known]
        print_table(("SCENARIO", "ABOUT"), rows, empty="there are no scenarios")


def _runs(scenarios: Sequence[str], seeds: range, days: float) -> list[SeedRun]:
    from everstep.fleet.many import SeedRun  # as above
    from everstep.fleet.scenario import load  # as above

    if not DAYS_MIN <= days <= DAYS_MAX:
        raise InvalidInput(f"--days {days:g}: expected {DAYS_MIN:g} to {DAYS_MAX:,.0f}")
    loaded = {}
    for name in scenarios:
        try:
            loaded[name] = load(name)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name} is no scenario: it is no text") from error
        except RecursionError as error:
            raise InvalidInput(f"{name} is no scenario: it is nested too deeply") from error
    return [
        SeedRun(named=name, scenario=scenario, seed=seed, days=days)
        for name, scenario in loaded.items()
        for seed in seeds
    ]


def _run(runs: Sequence[SeedRun], processes: int, trace: Path | None) -> list[SeedResult]:
    """Return the results, in the order of ``runs``."""
    from everstep.fleet.many import run_many  # as above

    whole_days = sum(run.days for run in runs)
    begun_s = time.monotonic()
    with nullcontext() if trace is None else trace.open("w") as out, Late() as late:

        def tell(done_days: float) -> None:
            how = how_far(done_days, whole_days, time.monotonic() - begun_s)
            late.tell("simulating", done_days, whole_days, how)

        found = list(run_many(runs, processes=processes, trace=out, tell=tell))
    return sorted(found, key=lambda result: runs.index(result.run))


def how_far(done_days: float, whole_days: float, elapsed_s: float) -> str:
    """Say how many simulated days are done, and how long the rest will take.

    Args:
        done_days: of all runs together.
        whole_days: that were asked for.
        elapsed_s: since the start.
    """
    if done_days <= 0:
        return ""
    left_ms = 1e3 * elapsed_s * (whole_days - done_days) / done_days
    return f"{done_days:.0f} of {whole_days:g} days, about {duration(left_ms)} left"


def _report(results: Sequence[SeedResult]) -> None:
    from everstep.fleet.report import text_report  # as above

    for named in dict.fromkeys(result.run.named for result in results):
        mine = [result for result in results if result.run.named == named]
        outcomes = [result.outcome for result in mine if result.outcome is not None]
        if outcomes:
            OUT.print(text_report(mine[0].run.scenario, outcomes), markup=False, end="")


def _replay(run: SeedRun) -> str:
    named = shlex.quote(run.named)
    return f"everstep sim fleet {named} --seed {run.seed} --days {run.days:g} --trace trace.txt"


def _document(results: Sequence[SeedResult]) -> dict[str, list[object]]:
    return {
        "outcomes": [one.outcome.as_json() for one in results if one.outcome is not None],
        "failed": [
            {
                "scenario": one.run.named,
                "seed": one.run.seed,
                "why": one.failure,
                "replay": _replay(one.run),
            }
            for one in results
            if one.outcome is None
        ],
    }
