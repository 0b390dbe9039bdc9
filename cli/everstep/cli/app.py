"""Puts the commands together."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Annotated

import typer

from everstep.cli import (
    chaos_commands,
    checkpoint_commands,
    data_commands,
    demo_command,
    event_commands,
    fault_commands,
    host_commands,
    job_commands,
    plan_command,
    run_commands,
    sim_commands,
    stack_commands,
    straggler_command,
)
from everstep.cli.options import JsonFlag, Session
from everstep.cli.output import OUT, print_json
from everstep.local.state import STATE_VARIABLE, state_paths

HELP = """Keep a training run going while the hosts under it fail.

Try it on this machine:

\b
  everstep data prepare docs --out corpus  make training data of text files
  everstep up                              start the stack: 4 hosts and a spare
  everstep run examples/pretrain.yaml      train, with a live view
  everstep kill host h2                    lose a host, watch the run recover
  everstep incidents                       what happened, why, and what it cost
  everstep down                            take everything down
"""

app = typer.Typer(
    name="everstep",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # examples keep their lines
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        OUT.print(_version_line())
        raise typer.Exit


def _version_line() -> str:
    number = importlib.metadata.version("everstep")
    return f"everstep {number} (Python {platform.python_version()})"


@app.callback(help=HELP)
def top(
    context: typer.Context,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            envvar=STATE_VARIABLE,
            help="The stack's directory; .everstep here if none is named.",
        ),
    ] = "",
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of failures.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Read the options that all commands share."""
    del version  # has been printed by now
    context.obj = Session(paths=state_paths(state), debug=debug)


@app.command("version")
def print_version(as_json: JsonFlag = False) -> None:
    """Print the version."""
    if as_json:
        number = importlib.metadata.version("everstep")
        print_json({"everstep": number, "python": platform.python_version()})
    else:
        OUT.print(_version_line())


for module in (
    stack_commands,
    run_commands,
    job_commands,
    host_commands,
    checkpoint_commands,
    event_commands,
    fault_commands,
    chaos_commands,
    data_commands,
    demo_command,
    plan_command,
    sim_commands,
    straggler_command,
):
    module.add_to(app)
