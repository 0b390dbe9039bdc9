"""``run`` and ``attach``: launch a job and follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from everstep.cli.client import Client, is_local_stack
from everstep.cli.follow import Follower
from everstep.cli.live import view_for
from everstep.cli.local_check import check_paths
from everstep.cli.options import JobId, JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT, print_json
from everstep.cli.position import ENDED
from everstep.cli.yaml_file import read_yaml
from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec, parse_spec
from everstep.local.state import expanded

# What a script that calls us can tell apart.
EXIT_CODES: Final = {"succeeded": 0, "failed": 1, "stopped": 3}
EXIT_DETACHED: Final = 130  # as every program that Ctrl-C ended


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job spec.")],
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Do not wait for the end.")
    ] = False,
    job_id: Annotated[
        str,
        typer.Option(
            "--job-id", help="An id of your own; launched once, however often it is submitted."
        ),
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Launch a job and follow it until it ends.

    Exit code 0 means that it succeeded, 1 that it failed or that nothing could be learnt
    of it, 3 that somebody stopped it.

    The spec's `cwd` is taken from the directory you are in, its other paths from `cwd`. Ctrl-C
    leaves the job running.

    Examples:
      everstep run examples/pretrain.yaml
      everstep run job.yaml --detach --json
    """
    spec = read_spec(file)
    with session_of(context).client() as client:
        if is_local_stack():
            check_paths(spec)
        launched = client.submit(spec.model_dump(mode="json"), job_id=job_id)
        new_id, ended = str(launched["job_id"]), launched.get("phase") in ENDED
        if detach and as_json:
            print_json(launched)
        elif detach:
            after = "" if ended else f"; follow it with `everstep attach {new_id}`"
            OUT.print(f"{_launch_line(launched)}{after}", markup=False)
        else:
            ERR.print(_launch_line(launched), markup=False)
            _follow(client, new_id, as_json=as_json)


def attach(context: typer.Context, job_id: JobId, as_json: JsonFlag = False) -> None:
    """Follow a job that runs already.

    The exit code is that of `run`.

    Example:
      everstep attach demo-4f21ac
    """
    with session_of(context).client() as client:
        _follow(client, job_id, as_json=as_json)


def read_spec(file: Path) -> JobSpec:
    """Read and check a job spec; ``cwd`` becomes absolute, seen from where the caller is.

    Raises:
        InvalidInput: the file cannot be read, is no YAML, or is no job spec.
    """
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise InvalidInput(f"{file} holds no job spec: a mapping with name, entry, layout, steps")
    spec = parse_spec(document)
    return spec.model_copy(update={"cwd": str(expanded(spec.cwd).resolve())})


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    register(app, run)
    register(app, attach)


def _launch_line(launched: dict[str, Any]) -> str:
    """Say what became of the submission; the same spec under the same id launches nothing new."""
    job_id, phase = launched["job_id"], launched.get("phase", "launching")
    if phase in ENDED:
        return (
            f"job {job_id} has {phase} already: nothing is launched; take another --job-id, or "
            "none, to run it again"
        )
    if phase != "launching":
        return f"job {job_id} was launched before and is {phase}"
    return f"job {job_id} is launched"


def _follow(client: Client, job_id: str, *, as_json: bool) -> None:
    try:
        with view_for(ERR if as_json else OUT) as view:
            job = Follower(client, job_id).follow(view)
    except KeyboardInterrupt:
        ERR.print(f"detached; the job goes on: `everstep attach {job_id}`", markup=False)
        raise typer.Exit(EXIT_DETACHED) from None
    if as_json:
        print_json(job)
    elif job["phase"] == "failed":
        why = f" ({job['why']})" if job.get("why") else ""
        ERR.print(f"job {job_id} failed{why}: {job['detail']}", markup=False)
    raise typer.Exit(EXIT_CODES.get(job["phase"], 1))
