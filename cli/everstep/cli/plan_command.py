"""``plan``: what failures will cost a run, how often to save, and how many spares to have.

The options of the inputs are made from the planner's own table, so that a new input is an option,
can be swept and stands in the report without an edit here.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from everstep.cli.history_command import (
    POLICY_TIMES,
    counterfactual,
    refuse_options,
    refuse_twice,
)
from everstep.cli.late import Late
from everstep.cli.options import JsonFlag, help_of, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table
from everstep.core.errors import InvalidInput, NotFoundError
from everstep.planner import monte_carlo
from everstep.planner.inputs import PARAMETERS, PRESETS, Inputs, as_text, changed, option
from everstep.planner.plan import Plan, SpareChoice, make_plan, spare_choices
from everstep.planner.quantities import SHARE
from everstep.planner.summary import Simulated, Table, plan_json, sweep_json, sweep_table, tables
from everstep.planner.sweep import Axis, Sweep, parse_axes, run_sweep

RUNS_MIN: Final = 2  # one run has no confidence interval
RUNS_MAX: Final = 100_000
SPARES_MAX: Final = 100_000  # each is followed through the record: seconds for so many
FOLDER: Final = Path("everstep-plan")
PRESET: Final = "mission"
REPLAY_OPTIONS: Final = ("spares", "straggler_threshold", "no_spare")  # of --from-history alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for besides the inputs."""

    preset: str
    runs: int
    seed: int
    out: Path | None
    as_json: bool


def plan(
    context: typer.Context,
    *,
    from_history: str | None = None,
    preset: str = PRESET,
    simulate: int = 0,
    seed: int = 0,
    sweep: list[str] | None = None,
    out: Path | None = None,
    as_json: bool = False,
    **given: Any,
) -> None:
    """Plan a run: when to save, how many spares to have.

    Says what failures will cost it, by cause, and which choices cost least. With --from-history:
    what another policy would have saved of a run that was.

    Quantities take units: 5s, 2m, 3h, 64d; 400e9, 400B, 15T; 500GB/s, or 400Gb/s in bits; 0.4 or
    40%.

    Examples:
      everstep plan
      everstep plan --preset llama3-405b --restart 2m --simulate 200
      everstep plan --params 70B --tokens 2T --chips 1024 --chip-mtbf 50000h --json
      everstep plan --sweep restart=30s..600s --out restart-times
      everstep plan --sweep chips=1024..65536 --sweep restart=30s,60s,120s
      everstep plan --from-history demo-4f21ac --restart 30s --spares 4
      everstep plan --from-history demo-4f21ac.history.json --sweep interval=10s..10m
    """
    if from_history is not None:
        asked = {**given, "preset": preset != PRESET, "simulate": simulate > 0, "out": out}
        try:
            axes = parse_axes(sweep or (), POLICY_TIMES)
            refuse_options(asked, axes)
        except InvalidInput as error:
            raise typer.BadParameter(str(error)) from error
        session = session_of(context)
        counterfactual(session, from_history, given, axes=axes, seed=seed, as_json=as_json)
        return
    request = Request(preset=preset, runs=simulate, seed=seed, out=out, as_json=as_json)
    try:
        _refuse_replay_options(given)
        axes = parse_axes(sweep or ())
        refuse_twice(given, axes)
        _run(request, changed(PRESETS[preset], given), axes)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", help=help_of(plan))(_with_options(plan))


def _run(request: Request, inputs: Inputs, axes: Sequence[Axis]) -> None:
    drawing = _drawing(request, wanted=request.out is not None or bool(axes))
    plan_ = make_plan(inputs)
    folder = _made(FOLDER if request.out is None else request.out) if drawing else FOLDER
    with Late() as late:
        late.tell("counting spare hosts")
        choices = spare_choices(plan_)
        swept = None
        if axes:
            swept = run_sweep(
                inputs, axes, runs=request.runs, seed=request.seed, progress=_task(late, "planning")
            )
        simulated = _simulate(plan_, request, late) if request.runs else ()
        files: tuple[Path, ...] = ()
        if drawing:
            late.tell("drawing")
            files = _write(folder, request, plan_, choices, simulated, swept)
    if request.as_json:
        value = plan_json(plan_, choices, simulated)
        if swept is not None:
            value["sweep"] = sweep_json(swept)
        print_json(value | {"files": [str(file) for file in files]})
        return
    for table in (sweep_table(swept),) if swept else tables(plan_, choices, simulated):
        _print(table)
    if files:
        OUT.print(f"written: {', '.join(str(file) for file in files)}", markup=False)


def _refuse_replay_options(given: dict[str, Any]) -> None:
    """Take out of the options those of a replay, and refuse them."""
    values = {name: given.pop(name) for name in REPLAY_OPTIONS}
    strange = [option(name) for name, value in values.items() if value is not None]
    if strange:
        raise InvalidInput(
            f"{', '.join(strange)} needs --from-history JOB|FILE: it says what to do about the "
            "failures of a run that was"
        )


def _simulate(plan_: Plan, request: Request, late: Late) -> tuple[Simulated, ...]:
    """Simulate what is in use, and the two ways with an object store."""
    made = []
    chosen = [
        saving
        for saving in plan_.savings
        if saving is plan_.in_use or saving.name in ("asynchronous", "two levels")
    ]
    for saving in chosen:
        goodput, wall_s = monte_carlo.simulate(
            saving.policy,
            mtbf_s=plan_.mtbf_s,
            useful_target_s=plan_.compute_s,
            runs=request.runs,
            seed=request.seed,
            progress=_task(late, f"simulating {saving.name}"),
        )
        made.append(Simulated(saving=saving, goodput=goodput, wall_s=wall_s))
    return tuple(made)


def _drawing(request: Request, *, wanted: bool) -> bool:
    """Say whether to draw; without the library only an explicit wish is an error."""
    from everstep.planner.report import require_drawing

    if not wanted:
        return False
    try:
        require_drawing()
    except NotFoundError as error:
        if request.out is not None:
            raise
        ERR.print(f"no plots: {error}", markup=False)
        return False
    return True


def _made(folder: Path) -> Path:
    """Make the folder before anything is computed for it. Raises InvalidInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise InvalidInput(
            f"--out {folder} is no folder to write to ({error.strerror}): name another one"
        ) from error


def _write(
    folder: Path,
    request: Request,
    plan_: Plan,
    choices: Sequence[SpareChoice],
    simulated: Sequence[Simulated],
    swept: Sweep | None,
) -> tuple[Path, ...]:
    from everstep.planner.report import write_report

    inputs = plan_.inputs
    changes = "" if inputs == PRESETS[request.preset] else ", changed"
    return write_report(
        folder,
        f"Plan: {request.preset}{changes}",
        plan_,
        choices,
        simulated=simulated,
        sweep=swept,
    )


def _print(table: Table) -> None:
    OUT.print(table.title, style="bold", markup=False)
    print_table(table.columns, table.rows, empty="nothing")
    if table.note:
        OUT.print(table.note, style="dim", markup=False)
    OUT.print()


def _task(late: Late, name: str) -> monte_carlo.Progress:
    return lambda done, total: late.tell(name, done, total, f"{done:,} of {total:,}")


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with a declared option for each keyword and input."""
    declared: dict[str, tuple[Any, Any]] = {
        "from_history": (
            _option(str | None, "--from-history", _HISTORY_HELP, metavar="JOB|FILE|-"), None,
        ),
        "preset": (
            _option(str, "--preset", f"Other inputs: {', '.join(PRESETS)}.", _preset),
            PRESET,
        ),
        **{name: (_input(name), None) for name in PARAMETERS},
        "spares": (_option(int | None, "--spares", _SPARES_HELP, _count, "NUMBER"), None),
        "straggler_threshold": (
            _option(float | None, "--straggler-threshold", _STRAGGLER_HELP, _share, "SHARE"), None,
        ),
        "no_spare": (
            _option(str | None, "--no-spare", _NO_SPARE_HELP, _no_spare, "wait|elastic"), None,
        ),
        "simulate": (
            _option(int, "--simulate", "Simulate so many whole runs; 0: none.", _runs), 0,
        ),
        "seed": (_option(int, "--seed", "Of the simulated runs."), 0),
        "sweep": (_option(list[str] | None, "--sweep", _SWEEP_HELP, metavar="INPUT=A..B"), None),
        "out": (_option(Path | None, "--out", _OUT_HELP, _folder, "FOLDER"), None),
        "as_json": (JsonFlag, False),
    }  # fmt: skip

    def declared_command(context: typer.Context, **values: Any) -> None:
        command(context, **values)

    declared_command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # for typer
        [
            inspect.Parameter(
                "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
            ),
            *(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
                )
                for name, (annotation, default) in declared.items()
            ),
        ]
    )
    return declared_command


_SWEEP_HELP: Final = "Plan over a range of an input (A..B, A..B:COUNT or A,B,C); twice for a pair."
_HISTORY_HELP: Final = (
    "Replay a run's failures instead: its id, or a file of `everstep jobs export` or `everstep "
    "events -n 0 --json`, or - for standard input. What is done about them: --interval, --restart, "
    "--detection, --repair, --spares, --straggler-threshold, --no-spare; the rest stays as it was."
)
_SPARES_HELP: Final = "With --from-history: hosts that stand by at the begin."
_STRAGGLER_HELP: Final = (
    "With --from-history: a spell that slows steps by so much or more ends in a restart on a spare."
)
_NO_SPARE_HELP: Final = (
    "With --from-history: what is done without a spare: wait for a host, or go on with fewer "
    "replicas."
)
_OUT_HELP: Final = f"Where PNG plots and report.html go; with --sweep {FOLDER}/ if not given."


def _input(name: str) -> Any:
    """Return the annotation of one input's option; it takes units."""
    parameter = PARAMETERS[name]

    def parse(text: str) -> float:
        try:
            return parameter.dimension.parse(text)
        except InvalidInput as error:
            raise typer.BadParameter(str(error)) from error

    kind = parameter.dimension.name.removeprefix("a ").upper()
    usual = as_text(name, getattr(PRESETS[PRESET], name))
    text = f"{parameter.help} [{PRESET}: {usual}]" if usual else parameter.help
    return _option(float | None, option(name), text, parse, metavar=kind)


def _option(
    kind: Any,
    name: str,
    text: str,
    parser: Callable[[str], Any] | None = None,
    metavar: str | None = None,
) -> Any:
    return Annotated[kind, typer.Option(name, help=text, parser=parser, metavar=metavar)]


def _share(text: str) -> float:
    try:
        return SHARE.parse(text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error


def _folder(text: str) -> Path:
    if not text.strip():
        raise typer.BadParameter("it names no folder")
    return Path(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is no number of hosts: write for example 4")
    if len(text.lstrip("0")) > len(str(SPARES_MAX)) or int(text) > SPARES_MAX:
        raise typer.BadParameter(
            f"{text} spares are more than any run needs: {SPARES_MAX:,} at most"
        )
    return int(text)


def _no_spare(text: str) -> str:
    if text not in ("wait", "elastic"):
        raise typer.BadParameter(f"{text!r} is not known: one of wait, elastic")
    return text


def _preset(name: str) -> str:
    if name not in PRESETS:
        raise typer.BadParameter(f"there is no preset {name!r}: one of {', '.join(PRESETS)}")
    return name


def _runs(text: str | int) -> int:
    """Return a number of runs; the default, 0 for no simulation, comes as a number."""
    if isinstance(text, int):
        return text
    if text.isdecimal() and not int(text):
        return 0
    if not text.isdecimal() or not RUNS_MIN <= int(text) <= RUNS_MAX:
        raise typer.BadParameter(
            f"{text!r} is no number of runs: 0 for none, or {RUNS_MIN} to {RUNS_MAX:,}"
        )
    return int(text)
