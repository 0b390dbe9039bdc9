"""``sim``: run the services' own decisions in a simulated fleet, under faults drawn from seeds.

``sim fleet`` is ``fleet_command.py``.

The simulator is imported by the commands that need it: it brings all four services along, and every
other command would start half a second later.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from everstep.cli.fleet_command import fleet
from everstep.cli.options import JsonFlag, help_of, register
from everstep.cli.output import ERR, OUT, print_json, print_table
from everstep.core.errors import InvalidInput

if TYPE_CHECKING:
    from everstep.sim.many import SeedResult
    from everstep.sim.swarm import Outcome, Plan

SEEDS_DEFAULT: Final = 100  # a minute or two on two cores
TOLD_MAX: Final = 5  # of what is wrong with one seed; the rest follows from it

sim_app = typer.Typer(name="sim", no_args_is_help=True, rich_markup_mode=None)


def sim() -> None:
    """Simulate fleets that run the services' own decisions."""


def run(
    seeds: Annotated[
        int, typer.Option("-n", "--seeds", min=1, help="How many seeds to run.")
    ] = SEEDS_DEFAULT,
    start: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0, help="Run seeds for this long [s] instead; 0: count them.")
    ] = 0,
    processes: Annotated[int, typer.Option(min=0, help="At once; 0: one a core.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Run seeds: fleets, jobs and faults drawn at random.

    Every event is checked against the invariants, and every job must end well once the faults are
    over. The exit code is 1 if a seed fails; each failure comes with the command that replays it.

    Examples:
      everstep sim run
      everstep sim run --seconds 600
      everstep sim run --start 1000 --seeds 50 --json
    """
    from everstep.sim.many import run_many  # see above

    logging.disable(logging.CRITICAL)
    done, failed = 0, []
    with ERR.status("no seed has ended yet") as status:
        for result in run_many(
            start=start,
            seeds=None if seconds else seeds,
            seconds=seconds or None,
            processes=processes,
        ):
            done += 1
            if result.wrong:
                failed.append(result)
                if not as_json:
                    _tell(result)
            status.update(f"{done} seeds, {len(failed)} failed")
    if as_json:
        print_json({"seeds": done, "failed": [asdict(one) for one in failed]})
    else:
        OUT.print(f"{done} seeds, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def _tell(result: SeedResult) -> None:
    OUT.print(f"seed {result.seed} fails ({', '.join(result.faults)}):", markup=False)
    for text in result.wrong[:TOLD_MAX]:
        OUT.print(f"  {text}", markup=False)
    OUT.print(f"  replay: everstep sim replay {result.seed}", markup=False)


def replay(
    seed: Annotated[int, typer.Argument(min=0, help="Of the run.")],
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace, a line an event, to this file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run one seed again, exactly, and show what it was made of.

    Examples:
      everstep sim replay 157
      everstep sim replay 157 --trace trace.txt
    """
    from everstep.sim.swarm import run_seed  # see above

    logging.disable(logging.CRITICAL)
    outcome = run_seed(seed)
    if trace is not None:
        _write(trace, outcome)
    if as_json:
        print_json(_document(outcome))
    else:
        _show(outcome.plan)
        _verdict(outcome)
    if outcome.wrong:
        raise typer.Exit(1)


def shrink_seed(
    seed: Annotated[int, typer.Argument(min=0, help="Of a run that fails.")],
    trace: Annotated[
        Path | None, typer.Option(help="Write the smallest run's trace to this file.")
    ] = None,
) -> None:
    """Cut a failing seed down to the faults that it needs.

    Example:
      everstep sim shrink 157 --trace small.txt
    """
    from everstep.sim.shrink import shrink  # see above
    from everstep.sim.swarm import run_seed  # see above

    logging.disable(logging.CRITICAL)
    outcome = run_seed(seed)
    if not outcome.wrong:
        raise InvalidInput(f"seed {seed} does not fail: there is nothing to shrink")
    with ERR.status(f"{len(outcome.plan.faults)} faults") as status:
        small = shrink(outcome, tell=lambda plan: status.update(f"{len(plan.faults)} faults"))
    if trace is not None:
        _write(trace, small)
    _show(small.plan)
    _verdict(small)


def story(
    name: Annotated[str, typer.Argument(help="Of the story; all of them if none is named.")] = "",
    trace: Annotated[Path | None, typer.Option(help="Write the story's trace here.")] = None,
) -> None:
    """Play named stories.

    They tell what a run must survive, and every fault of ours that a seed has found.

    Examples:
      everstep sim story
      everstep sim story host_lost --trace trace.txt
    """
    from everstep.sim.scenarios import SCENARIOS, play  # see above

    logging.disable(logging.CRITICAL)
    if name and name not in SCENARIOS:
        raise InvalidInput(
            f"there is no story {name!r}: expected one of {', '.join(sorted(SCENARIOS))}"
        )
    rows, failed = [], False
    for one in [name] if name else sorted(SCENARIOS):
        try:
            stage = play(one)
        except AssertionError as error:
            failed = True
            where = traceback.extract_tb(error.__traceback__)[-1]
            rows.append((one, "failed", f"{where.name}: {where.line or ''} {error}".strip()))
            continue
        rows.append((one, "succeeded", f"{stage.world.now_ms / 1e3:.0f} s in its world"))
        if trace is not None:
            trace.write_text("\n".join(stage.world.trace.lines) + "\n")
    print_table(("STORY", "OUTCOME", ""), rows, empty="there are no stories")
    if failed:
        raise typer.Exit(1)


def _write(path: Path, outcome: Outcome) -> None:
    path.write_text("\n".join(outcome.trace) + "\n")


def _show(plan: Plan) -> None:
    hosts = plan.fleet.pods * plan.fleet.hosts_per_pod
    held = f", held out for {plan.hold_s} s" if plan.hold_s else ""
    OUT.print(f"{hosts} hosts in {plan.fleet.pods} pods{held}; {plan.conditions}", markup=False)
    for job in plan.jobs:
        OUT.print(str(job), markup=False)
    rows = [(f"{fault.at_s:.1f}", str(fault)) for fault in plan.faults]
    print_table(("SECOND", "FAULT"), rows, empty="no faults")


def _verdict(outcome: Outcome) -> None:
    for text in outcome.wrong:
        OUT.print(f"wrong: {text}", markup=False)
    if not outcome.wrong:
        OUT.print("all jobs ended well and every invariant held")
    OUT.print(f"{outcome.virtual_s:.1f} s simulated, trace {outcome.digest[:16]}")


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "plan": asdict(outcome.plan),
        "wrong": list(outcome.wrong),
        "virtual_s": outcome.virtual_s,
        "digest": outcome.digest,
    }


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    sim_app.callback(help=help_of(sim))(sim)
    register(sim_app, run)
    register(sim_app, replay)
    register(sim_app, shrink_seed, "shrink")
    register(sim_app, story)
    register(sim_app, fleet)
    app.add_typer(sim_app)
