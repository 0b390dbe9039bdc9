"""``hosts``, ``incidents``, ``checkpoints``: what the services know about the fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from everstep.cli.options import JobFilter, JsonFlag, register, register_listing, session_of
from everstep.cli.output import OUT, clock_time, duration, print_json, print_table, ranges, size

hosts_app = typer.Typer(
    name="hosts",
    rich_markup_mode=None,
    help="List hosts, or take one out of service and back.",
)


def hosts(context: typer.Context, as_json: JsonFlag = False) -> None:
    """List the hosts.

    Examples:
      everstep hosts
      everstep hosts cordon h3 --reason "fan noise"
    """
    if context.invoked_subcommand is not None:
        return
    with session_of(context).client() as client:
        found = client.hosts()
    if as_json:
        print_json(found)
        return
    rows = [
        [
            host["host_id"],
            host["state"],
            host.get("job_id", ""),
            host.get("pod", ""),
            host.get("chips", ""),
            host.get("cordon_reason", ""),
        ]
        for host in found
    ]
    print_table(["host", "state", "job", "pod", "chips", "reason"], rows, empty="no hosts yet")


def cordon(
    context: typer.Context,
    name: str,
    reason: Annotated[str, typer.Option(help="Why; shown in `everstep hosts`.")] = "by hand",
) -> None:
    """Give a host no more work.

    Example:
      everstep hosts cordon h3 --reason "fan noise"
    """
    with session_of(context).client() as client:
        client.cordon(name, reason)
    OUT.print(f"host {name} is cordoned: {reason}", markup=False)


def uncordon(context: typer.Context, name: str) -> None:
    """Let a host be used again.

    Example:
      everstep hosts uncordon h3
    """
    with session_of(context).client() as client:
        client.uncordon(name)
    OUT.print(f"host {name} may be used again", markup=False)


def incidents(context: typer.Context, job: JobFilter = "", as_json: JsonFlag = False) -> None:
    """List what went wrong, with the cause.

    Examples:
      everstep incidents
      everstep incidents --job demo-4f21ac --json
    """
    with session_of(context).client() as client:
        found = client.incidents(job)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            clock_time(incident["detected_at_ms"]),
            incident["job_id"],
            incident["step"],
            incident["kind"],
            ", ".join(incident["hosts"]),
            ranges(incident["ranks"]),
            incident["action"],
            duration(incident["detected_at_ms"] - incident["failed_at_ms"]),
            duration(incident["lost_ms"]) if incident["recovered_at_ms"] else "open",
            incident["reason"],
        ]
        for incident in found
    ]
    columns = ["detected", "job", "step", "kind", "hosts", "ranks", "action"]
    columns += ["seen after", "lost", "reason"]
    print_table(columns, rows, empty="no incidents")


def checkpoints(context: typer.Context, job: JobFilter = "", as_json: JsonFlag = False) -> None:
    """List checkpoints in the object store.

    Example:
      everstep checkpoints --job demo-4f21ac
    """
    with session_of(context).client() as client:
        found = client.checkpoints(job)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            checkpoint["job_id"],
            checkpoint["step"],
            checkpoint["generation"],
            checkpoint.get("state", ""),
            size(checkpoint.get("bytes") or 0),
            checkpoint.get("manifest_uri", ""),
        ]
        for checkpoint in found
    ]
    columns = ["job", "step", "generation", "state", "size", "manifest"]
    print_table(columns, rows, empty="no checkpoints yet")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    register_listing(hosts_app, hosts)
    register(hosts_app, cordon)
    register(hosts_app, uncordon)
    app.add_typer(hosts_app)
    register(app, incidents)
    register(app, checkpoints)
