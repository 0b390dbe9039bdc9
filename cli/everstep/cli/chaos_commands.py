"""``chaos``: inject faults into a stack that was started for it, and judge what came of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from everstep.chaos.campaign import Campaign, parse_campaign
from everstep.chaos.kinds import KINDS, Blamed
from everstep.cli.options import JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table
from everstep.cli.run_commands import read_spec
from everstep.core.errors import InvalidInput
from everstep.core.system import SystemClock

RUN_TIMEOUT_S: Final = 3_600.0  # one run; a campaign of hours needs more
WORLD_DEFAULT: Final = 8  # ranks that `check` supposes when it is given no spec
File = Annotated[Path, typer.Argument(metavar="CAMPAIGN.YAML", help="The campaign.")]

chaos_app = typer.Typer(
    name="chaos",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Inject faults, and see whether each is put right.",
)


def run(
    context: typer.Context,
    file: File,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="JOB.YAML", help="Launch this job for it.")
    ] = None,
    job: Annotated[str, typer.Option("--job", help="Disturb this job, which runs already.")] = "",
    reference: Annotated[
        bool,
        typer.Option("--reference", help="Also run the job undisturbed, and compare the states."),
    ] = False,
    against: Annotated[
        str, typer.Option("--against", help="Compare with the end state of this job instead.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the report there, as JSON.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Give a run up after so many seconds.")
    ] = RUN_TIMEOUT_S,
    as_json: JsonFlag = False,
) -> None:
    """Disturb a job as a campaign says, and report.

    The stack must have been started with `everstep up --chaos`. Exit code 0 only if every fault
    was found, blamed on whom it met and put right, nothing else was found, and the end state is
    what it should be.

    Examples:
      everstep chaos run campaign.yaml --spec job.yaml --reference
      everstep chaos run campaign.yaml --job demo-4f21ac --json
    """
    from everstep.chaos import perform
    from everstep.chaos.outcome import report_lines
    from everstep.chaos.run import require_chaos

    if (spec is None) == (not job):
        raise InvalidInput("say which job: --spec JOB.YAML launches one, --job names one that runs")
    if reference and spec is None:
        raise InvalidInput("--reference needs --spec: what is to run undisturbed? Or use --against")
    session = session_of(context)
    require_chaos(session.paths)
    with session.client() as client:
        stage = perform.Stage(
            paths=session.paths,
            client=client,
            clock=SystemClock(),
            say=lambda line: ERR.print(line, markup=False),
            timeout_s=timeout_s,
        )
        if spec is not None:
            told = read_spec(spec).model_dump(mode="json")
            campaign = read_campaign(file, _world_size(told))
            report = perform.on_new_job(
                stage, campaign, told, reference=against, make_reference=reference
            )
        else:
            campaign = read_campaign(file, _world_size(client.job(job)["spec"]))
            report = perform.on_running_job(stage, campaign, job, reference=against)
    if out is not None:
        out.write_text(json.dumps(report, indent=2) + "\n")
    if as_json:
        print_json(report)
    else:
        for line in report_lines(report):
            OUT.print(line, markup=False)
    raise typer.Exit(0 if report["ok"] else 1)


def check(
    file: File,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="JOB.YAML", help="Of the job it is meant for.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a campaign and print what would happen.

    Without --spec, for a job of 8 ranks.

    Example:
      everstep chaos check campaign.yaml --spec job.yaml
    """
    world_size = WORLD_DEFAULT
    if spec is not None:
        world_size = _world_size(read_spec(spec).model_dump(mode="json"))
    campaign = read_campaign(file, world_size)
    if as_json:
        faults = [
            {"number": one.number, "kind": one.kind.name, "by": one.kind.by, "what": str(one)}
            for one in campaign.faults
        ]
        print_json({"name": campaign.name, "seed": campaign.seed, "faults": faults})
        return
    count = len(campaign.faults)
    OUT.print(f"campaign {campaign.name}, seed {campaign.seed}: {count} faults", markup=False)
    for one in campaign.faults:
        OUT.print(f"  {one}; right: {_right(one.kind.name)}", markup=False)


def kinds(as_json: JsonFlag = False) -> None:
    """List the kinds of faults, and the right answer to each.

    Example:
      everstep chaos kinds
    """
    rows = [
        {
            "kind": one.name,
            "by": one.by,
            "whom": one.whom,
            "about": one.about,
            "options": dict(one.options),
            "lasts_s": one.lasts_s,
            "right": _right(one.name),
        }
        for one in KINDS.values()
    ]
    if as_json:
        print_json(rows)
        return
    cells = [[row["kind"], row["whom"], row["right"], _options(row), row["about"]] for row in rows]
    print_table(["kind", "whom", "right", "options", "what"], cells, empty="")


def read_campaign(file: Path, world_size: int) -> Campaign:
    """Read and check a campaign.

    Raises:
        InvalidInput: the file cannot be read, is no YAML, or is no campaign.
    """
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return parse_campaign(document, world_size=world_size)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (run, check, kinds):
        register(chaos_app, command)
    app.add_typer(chaos_app)


def _world_size(spec: dict[str, Any]) -> int:
    size = 1
    for count in spec["layout"].values():
        size *= int(count)
    return size


def _right(name: str) -> str:
    right = KINDS[name].right
    if right.blamed is Blamed.NO_INCIDENT:
        return "nothing happens to the run"
    return f"{' or '.join(right.incidents)}, {right.blamed} named"


def _options(row: dict[str, Any]) -> str:
    lasts = [f"for_s {row['lasts_s']:g}"] if row["lasts_s"] else []
    return ", ".join([*(f"{name} {value}" for name, value in row["options"].items()), *lasts])
