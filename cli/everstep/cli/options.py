"""Options that many commands share, and what every command gets from the top level."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from everstep.cli.client import Client, service_urls
from everstep.local.state import StatePaths

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
JobFilter = Annotated[str, typer.Option("--job", help="Only of this job.")]


def plain_name(given: str) -> str:
    """Return a name of ours as it is; what else was typed would ask for another address."""
    if not re.fullmatch(r"[\w-]+", given):
        raise typer.BadParameter(f"expected letters, digits, - and _, got {given!r}")
    return given


HostName = Annotated[
    str,
    typer.Argument(
        metavar="HOST", callback=plain_name, help="The host's name; `everstep hosts` lists them."
    ),
]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB", callback=plain_name, help="The job's id; `everstep jobs` lists them."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the top level has found out."""

    paths: StatePaths
    debug: bool = False

    def client(self) -> Client:
        """Return a client of the services. Raises NotFoundError when there is no stack."""
        return Client(service_urls(self.paths))


def register(
    app: typer.Typer, command: Callable[..., Any], name: str | None = None, *, hidden: bool = False
) -> None:
    """Add a command whose help is its docstring, with the lines of its examples kept."""
    app.command(name, help=help_of(command), hidden=hidden)(command)


def register_listing(app: typer.Typer, listing: Callable[..., Any]) -> None:
    """Let a group without a sub-command print a listing."""
    app.callback(invoke_without_command=True, help=help_of(listing))(listing)


def help_of(command: Callable[..., Any]) -> str:
    """Return a command's docstring; a backspace mark keeps its examples from being re-wrapped."""
    text = inspect.getdoc(command) or ""
    return text.replace("\n\nExample", "\n\n\b\nExample")


def session_of(context: typer.Context) -> Session:
    """Return the session that the top level made."""
    session = context.find_object(Session)
    assert session is not None, "the top level makes one before any command runs"
    return session
