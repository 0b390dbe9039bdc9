"""``chaos``: inject faults into a stack that was started for it, and judge what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from everstep.chaos.campaign import Campaign, parse_campaign
from everstep.chaos.kinds import KINDS, Blamed, Equal
from everstep.chaos.possible import Setting
from everstep.cli.client import is_local_stack
from everstep.cli.local_check import check_paths
from everstep.cli.options import JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table
from everstep.cli.run_commands import read_spec
from everstep.cli.yaml_file import read_yaml
from everstep.core.errors import InvalidInput
from everstep.core.spec import parse_spec
from everstep.core.system import SystemClock
from everstep.local import launch

if TYPE_CHECKING:
    from everstep.chaos.perform import Stage
    from everstep.local.state import Stack

RUN_TIMEOUT_S: Final = 3_600.0  # a campaign of hours needs more
EXIT_TIMED_OUT: Final = 124  # as of `timeout`
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
        float, typer.Option("--timeout", min=1, help="Give it all up after so many seconds.")
    ] = RUN_TIMEOUT_S,
    as_json: JsonFlag = False,
) -> None:
    """Disturb a job as a campaign says, and report.

    The stack must have been started with `everstep up --chaos`. Exit code 0 only if every fault
    was found, blamed on whom it met and put right, nothing else was found, and the end state is
    what it should be; 124 if it was given up after --timeout seconds, counted over all of it: the
    undisturbed run, the job, the comparison. A job that it launched is stopped then.

    Examples:
      everstep chaos run campaign.yaml --spec job.yaml --reference
      everstep chaos run campaign.yaml --job demo-4f21ac --json
    """
    from everstep.chaos import preflight
    from everstep.chaos.deadline import TimedOut
    from everstep.chaos.perform import Stage
    from everstep.chaos.run import require_chaos

    if (spec is None) == (not job):
        raise InvalidInput("say which job: --spec JOB.YAML launches one, --job names one that runs")
    if reference and against:
        raise InvalidInput("--reference makes a run to compare with, --against names one: say one")
    if reference and spec is None:
        raise InvalidInput("--reference needs --spec: what is to run undisturbed? Or use --against")
    session = session_of(context)
    if out is not None:
        preflight.require_writable(out)
    stack = require_chaos(session.paths)
    with session.client() as client:
        stage = Stage(
            paths=session.paths,
            client=client,
            clock=SystemClock(),
            say=lambda line: ERR.print(line, markup=False),
            timeout_s=timeout_s,
        )
        try:
            report = (
                _on_running_job(stage, stack, file, job, against)
                if spec is None
                else _on_new_job(stage, stack, file, spec, against, reference=reference)
            )
        except TimedOut as error:
            ERR.print(f"error: {error}", markup=False)
            raise typer.Exit(EXIT_TIMED_OUT) from None
    _tell(report, out, as_json=as_json)
    raise typer.Exit(EXIT_TIMED_OUT if report["timed_out"] else 0 if report["ok"] else 1)


def _on_new_job(
    stage: Stage, stack: Stack, file: Path, spec: Path, against: str, *, reference: bool
) -> dict[str, Any]:
    """Check all that can be known, then launch a job and disturb it."""
    from everstep.chaos import perform, preflight
    from everstep.chaos.outcome import wanted_equal

    checked = read_spec(spec)
    if is_local_stack():
        check_paths(checked)
    told = checked.model_dump(mode="json")
    campaign = possible_campaign(file, preflight.setting_of(stack, told), told)
    if against:
        preflight.require_comparable(stage.client, against, told)
    if reference:
        spiky = wanted_equal(campaign) is Equal.SKIPPED
        preflight.require_reference(told, leaves_batches_out=spiky)
    return perform.on_new_job(stage, campaign, told, reference=against, make_reference=reference)


def _on_running_job(
    stage: Stage, stack: Stack, file: Path, job_id: str, against: str
) -> dict[str, Any]:
    """Check all that can be known, then disturb a job."""
    from everstep.chaos import perform, preflight
    from everstep.chaos.run import require_outside

    job = stage.client.job(job_id)
    preflight.require_running(job)
    told = parse_spec(job["spec"]).model_dump(mode="json")
    placed = (job.get("placement") or {}).get("hosts") or ()
    setting = replace(preflight.setting_of(stack, told), job_hosts=len(placed))
    campaign = possible_campaign(file, setting, told)
    require_outside(campaign)
    if against:
        preflight.require_comparable(stage.client, against, told)
    return perform.on_running_job(stage, campaign, job_id, reference=against)


def _tell(report: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Print the verdict first: what cannot be written must not be lost."""
    from everstep.chaos.outcome import report_lines

    if as_json:
        print_json(report)
    else:
        for line in report_lines(report):
            OUT.print(line, markup=False)
    if out is not None:
        out.write_text(json.dumps(report, indent=2) + "\n")


def check(
    context: typer.Context,
    file: File,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="JOB.YAML", help="Of the job it is meant for.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a campaign and print what would happen.

    Without --spec, for a job of 8 ranks. Hosts are those of the stack that runs here. What could
    not be checked is said.

    Example:
      everstep chaos check campaign.yaml --spec job.yaml
    """
    from everstep.chaos import preflight
    from everstep.chaos.possible import not_checked

    told = None if spec is None else read_spec(spec).model_dump(mode="json")
    setting = preflight.setting_of(launch.running_stack(session_of(context).paths), told)
    campaign = possible_campaign(file, setting, told)
    unknown = not_checked(campaign, setting)
    if as_json:
        faults = [
            {"number": one.number, "kind": one.kind.name, "by": one.kind.by, "what": str(one)}
            for one in campaign.faults
        ]
        said = {"name": campaign.name, "seed": campaign.seed, "faults": faults}
        print_json({**said, "not_checked": unknown})
        return
    count = len(campaign.faults)
    OUT.print(f"campaign {campaign.name}, seed {campaign.seed}: {count} faults", markup=False)
    for one in campaign.faults:
        OUT.print(f"  {one}; right: {_right(one.kind.name)}", markup=False)
    for line in unknown:
        OUT.print(f"not checked: {line}", markup=False)


def possible_campaign(file: Path, setting: Setting, spec: Mapping[str, Any] | None) -> Campaign:
    """Read a campaign that can happen there.

    Raises:
        InvalidInput: it cannot be read, or names what is not there.
    """
    from everstep.chaos.possible import require_possible
    from everstep.chaos.preflight import world_size

    ranks = WORLD_DEFAULT if spec is None else world_size(spec["layout"])
    campaign = read_campaign(file, ranks).on_hosts(setting.job_hosts)
    try:
        require_possible(campaign, setting)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None
    return campaign


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
    document = read_yaml(file)
    try:
        return parse_campaign(document, world_size=world_size)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (run, check, kinds):
        register(chaos_app, command)
    app.add_typer(chaos_app)


def _right(name: str) -> str:
    right = KINDS[name].right
    if right.blamed is Blamed.NO_INCIDENT:
        return "nothing happens to the run"
    return f"{' or '.join(right.incidents)}, {right.blamed} named"


def _options(row: dict[str, Any]) -> str:
    lasts = [f"for_s {row['lasts_s']:g}"] if row["lasts_s"] else []
    return ", ".join([*(f"{name} {value}" for name, value in row["options"].items()), *lasts])
