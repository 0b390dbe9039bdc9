"""``hosts``, ``incidents``: what the services know about the fleet."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any, Final

import typer

from everstep.cli.client import Client
from everstep.cli.host_care import add_care, back_at, last_probe, why
from everstep.cli.live import incident_outcome, incident_place
from everstep.cli.options import (
    HostName,
    JobFilter,
    JsonFlag,
    register,
    register_listing,
    session_of,
)
from everstep.cli.output import OUT, duration, print_json, print_table, short_time
from everstep.core.system import SystemClock

REASON_WIDTH_MIN: Final = 40  # on a narrower screen the terminal folds

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
      everstep hosts maintain h3 --reason "new firmware"
      everstep hosts show h3
    """
    if context.invoked_subcommand is not None:
        return
    with session_of(context).client() as client:
        found = client.hosts()
    if as_json:
        print_json(found)
        return
    now_ms = SystemClock().now_ms()
    rows = [
        [
            host["host_id"],
            host["state"],
            host.get("job_id", ""),
            host.get("pod", ""),
            host.get("chips", ""),
            back_at(host, now_ms=now_ms),
            last_probe(host, now_ms=now_ms),
            why(host),
        ]
        for host in found
    ]
    columns = ["host", "state", "job", "pod", "chips", "back", "probed", "reason"]
    print_table(columns, rows, empty="no hosts yet")


def cordon(
    context: typer.Context,
    name: HostName,
    reason: Annotated[str, typer.Option(help="Why; shown in `everstep hosts`.")] = "by hand",
) -> None:
    """Give a host no more work.

    A job that runs on it goes on; it gets another host with its next restart.

    Example:
      everstep hosts cordon h3 --reason "fan noise"
    """
    with session_of(context).client() as client:
        client.cordon(name, reason)
    OUT.print(f"host {name} is cordoned: {reason}", markup=False)


def drain(
    context: typer.Context,
    name: HostName,
    reason: Annotated[str, typer.Option(help="Why; shown in `everstep hosts`.")] = "by hand",
) -> None:
    """Free a host for maintenance, losing no step.

    Its job stops after a last common step as soon as a spare can take the host's place, and goes on
    from there; until then it runs where it is. A host without a job is cordoned at once.

    Example:
      everstep hosts drain h3 --reason "new firmware"
    """
    with session_of(context).client() as client:
        found = {host["host_id"]: host for host in client.hosts()}
        job_id = found[name]["job_id"] if name in found else ""
        if not job_id:
            client.cordon(name, reason)
            OUT.print(f"host {name} serves no job: cordoned", markup=False)
            return
        client.act(job_id, "drain", {"hosts": [name], "why": reason})
    OUT.print(
        f"job {job_id} moves off {name} once a spare can take its place "
        f"(`everstep jobs show {job_id}`)",
        markup=False,
    )


def incidents(context: typer.Context, job: JobFilter = "", as_json: JsonFlag = False) -> None:
    """List what went wrong, with the cause.

    Examples:
      everstep incidents
      everstep incidents --job demo-4f21ac --json
    """
    with session_of(context).client() as client:
        found = _incidents_of(client, job)
    if as_json:
        print_json(found)
        return
    if not found:
        OUT.print("no incidents")
    now_ms = SystemClock().now_ms()
    for incident in found:
        for line in incident_lines(incident, now_ms=now_ms, width=OUT.width):
            OUT.print(line, markup=False)


def _incidents_of(client: Client, job: str) -> list[dict[str, Any]]:
    """Return incidents, of one job if asked; none of one the monitor has not heard of yet.

    Raises:
        NotFoundError: the controller knows no such job either.
    """
    found = client.incidents(job)
    if job and not found:
        client.job(job)  # says so if there is no such job
    return found


def incident_lines(incident: dict[str, Any], *, now_ms: int, width: int) -> list[str]:
    """Return an incident as lines: what, where and when; then what it cost; then why."""
    when = short_time(incident["detected_at_ms"], now_ms=now_ms)
    seen_ms = incident["detected_at_ms"] - incident["failed_at_ms"]
    # What shows only over many steps has no moment at which it began.
    seen = f", noticed after {duration(seen_ms)}" if seen_ms else ""
    what = f"{incident['kind']} on {incident_place(incident)}"
    outcome = incident_outcome(incident) or "not recovered yet"
    below = [
        f"{incident['action']}{seen}; {outcome}",
        *textwrap.wrap(incident["reason"], max(REASON_WIDTH_MIN, width - len(when) - 2)),
    ]
    job = incident["job_id"]
    where = f"job {job} at step {incident['step']}" if job else "no running job"
    return [
        f"{when}  {where}: {what}",
        *(f"{' ' * len(when)}  {line}" for line in below),
    ]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    register_listing(hosts_app, hosts)
    register(hosts_app, cordon)
    register(hosts_app, drain)
    add_care(hosts_app)
    app.add_typer(hosts_app)
    register(app, incidents)
