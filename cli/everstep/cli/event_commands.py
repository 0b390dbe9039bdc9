"""``events``: what has happened, as the services published it."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everstep.cli.client import SERVICES
from everstep.cli.options import JobFilter, JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT
from everstep.core.errors import InvalidInput
from everstep.local import launch

SERVICE_NAMES = tuple(name.replace("_", "-") for name in SERVICES)


def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as they happen.")] = False,
    lines: Annotated[
        int,
        typer.Option(
            "-n", "--lines", min=0, help="How many past ones; 0: all that are kept (30 days)."
        ),
    ] = 50,
    service: Annotated[
        str, typer.Option(help=f"Only of this service: {', '.join(SERVICE_NAMES)}.")
    ] = "",
    job: JobFilter = "",
    as_json: JsonFlag = False,
) -> None:
    """Print published events, one a line.

    Examples:
      everstep events
      everstep events --follow --job demo-4f21ac
      everstep events --follow --json | jq .type
    """
    name = service.replace("-", "_")
    if name and name not in SERVICES:
        raise InvalidInput(
            f"there is no service {service!r}: expected one of {', '.join(SERVICE_NAMES)}"
        )
    session = session_of(context)
    stack = launch.require_stack(session.paths)
    from everstep.cli.event_stream import follow_events  # brings the bus's client along

    try:
        any_seen = asyncio.run(
            follow_events(
                stack,
                follow=follow,
                lines=lines,
                service=name,
                job_id=job,
                as_json=as_json,
            )
        )
    except KeyboardInterrupt:
        ERR.print("", end="")
        return
    if not any_seen and not as_json:
        OUT.print("no such events")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    register(app, events)
