"""``sim``: run the services' own decisions in a simulated fleet, under faults drawn from seeds.

``sim fleet`` is ``fleet_command.py``.

The simulator is imported by the commands that need it: it brings all four services along, and every
other command would start half a second later.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from everstep.cli.fleet_command import fleet
from everstep.cli.late import Late
from everstep.cli.options import JsonFlag, help_of, register
from everstep.cli.output import OUT, print_json, print_table
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
    done, failed, interrupted = 0, [], False
    wanted = None if seconds else seeds
    results = run_many(start=start, seeds=wanted, seconds=seconds or None, processes=processes)
    with Late() as late, closing(results):
        late.tell("running seeds", 0, wanted)
        try:
            for result in results:
                done += 1
                if result.wrong:
                    failed.append(result)
                    if not as_json:
                        _tell(result)
                late.tell("running seeds", done, wanted, f"{done} done, {len(failed)} failed")
        except KeyboardInterrupt:
            interrupted = True
    if as_json:
        told = [{**asdict(one), "replay": _replay_of(one)} for one in failed]
        print_json({"seeds": done, "failed": told, "interrupted": interrupted})
    else:
        OUT.print(f"{done} seeds, {len(failed)} failed{', interrupted' if interrupted else ''}")
    if interrupted:
        raise KeyboardInterrupt
    if failed:
        raise typer.Exit(1)


def _tell(result: SeedResult) -> None:
    OUT.print(f"seed {result.seed} fails ({', '.join(result.faults)}):", markup=False)
    for text in result.wrong[:TOLD_MAX]:
        OUT.print(f"  {text}", markup=False)
    OUT.print(f"  replay: {_replay_of(result)}", markup=False)


def _replay_of(result: SeedResult) -> str:
    return f"everstep sim replay {result.seed}"


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
    with _file(trace) as file, Late() as late:
        late.tell(f"running seed {seed}")
        outcome = run_seed(seed)
        _write(file, outcome.trace)
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
    with _file(trace) as file, Late() as late:
        late.tell(f"running seed {seed}")
        outcome = run_seed(seed)
        if not outcome.wrong:
            raise InvalidInput(f"seed {seed} does not fail: there is nothing to shrink")
        small = shrink(
            outcome,
            tell=lambda plan: late.tell("shrinking", how=f"{len(plan.faults)} faults are left"),
        )
        _write(file, small.trace)
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
    from everstep.sim.playing import play  # see above
    from everstep.sim.scenarios import SCENARIOS  # see above

    logging.disable(logging.CRITICAL)
    if name and name not in SCENARIOS:
        raise InvalidInput(
            f"there is no story {name!r}: expected one of {', '.join(sorted(SCENARIOS))}"
        )
    if trace is not None and not name:
        raise InvalidInput("--trace is of one story: name it")
    rows, failed = [], False
    names = [name] if name else sorted(SCENARIOS)
    with _file(trace) as file, Late() as late:
        for number, one in enumerate(names):
            late.tell("playing", number, len(names), f"{number} of {len(names)} played, now {one}")
            lines: list[str] = []
            try:
                stage = play(one, lines=lines)
            except AssertionError as error:
                failed = True
                where = traceback.extract_tb(error.__traceback__)[-1]
                rows.append((one, "failed", f"{where.name}: {where.line or ''} {error}".strip()))
            else:
                rows.append((one, "succeeded", f"{stage.world.now_ms / 1e3:.0f} s in its world"))
            _write(file, lines)
    print_table(("STORY", "OUTCOME", ""), rows, empty="there are no stories")
    if failed:
        raise typer.Exit(1)


def _file(path: Path | None) -> AbstractContextManager[TextIO | None]:
    """Open the trace's file before anything runs: one that cannot be written costs no time."""
    return nullcontext() if path is None else path.open("w")


def _write(file: TextIO | None, lines: Iterable[str]) -> None:
    if file is not None:
        file.writelines(f"{line}\n" for line in lines)


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
