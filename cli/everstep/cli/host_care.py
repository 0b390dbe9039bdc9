"""``hosts show``, ``uncordon``, ``maintain``, ``back``: how a host is, and how it comes back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from everstep.cli.options import HostName, JsonFlag, register, session_of
from everstep.cli.output import OUT, clock_time, duration, print_json, short_time
from everstep.core.errors import InvalidInput
from everstep.core.system import SystemClock

Json = dict[str, Any]


def back_at(host: Json, *, now_ms: int) -> str:
    """Say when a host that is out comes back, and how."""
    if host["state"] == "probing":
        return "after its burn-in" if host.get("awaits") == "burn_in" else "after its probes"
    if host["state"] != "cordoned":
        return ""
    until_ms = host.get("held_until_ms") or 0
    if not host.get("returns"):
        return "when told"
    return (
        f"from {short_time(until_ms, now_ms=now_ms)} on" if until_ms > now_ms else "when it joins"
    )


def last_probe(host: Json, *, now_ms: int) -> str:
    """Say when a host was probed last, and what failed."""
    report = host.get("last_probe")
    if not report:
        return ""
    failed = [probe["name"] for probe in report["probes"] if probe["verdict"] == "failed"]
    nothing = [probe["name"] for probe in report["probes"] if probe["verdict"] == "not_run"]
    found = f"failed: {failed[0]}" if failed else "not run" if nothing else "passed"
    return f"{short_time(report['at_ms'], now_ms=now_ms)} {found}"


def why(host: Json) -> str:
    """Say why a host gets no work, or soon will not."""
    return str(host.get("cordon_reason") or host.get("maintenance") or "")


def is_out(host: Json) -> bool:
    """Say whether a host is kept from work, or soon will be, by what a person can end."""
    return host["state"] == "cordoned" or bool(host.get("awaits") or host.get("maintenance"))


def show(context: typer.Context, name: HostName, as_json: JsonFlag = False) -> None:
    """Show why a host is out, how it comes back, its probes.

    Example:
      everstep hosts show h3
    """
    with session_of(context).client() as client:
        host = client.host(name)
    if as_json:
        print_json(host)
        return
    for line in host_lines(host, now_ms=SystemClock().now_ms()):
        OUT.print(line, markup=False)


def host_lines(host: Json, *, now_ms: int) -> list[str]:
    """Return a host as lines."""
    serves = f", serves job {host['job_id']}" if host["job_id"] else ""
    lines = [f"{host['host_id']}: {host['state']}{serves}"]
    if why(host):
        lines.append(f"  why       {why(host)}")
    if back_at(host, now_ms=now_ms):
        lines.append(f"  back      {back_at(host, now_ms=now_ms)}")
    if host["relapses"]:
        lines.append(f"  failures  {host['relapses']} that still count")
    if host["error_counts"]:
        counts = ", ".join(
            f"{count} {kind}" for kind, count in sorted(host["error_counts"].items())
        )
        lines.append(f"  errors    {counts}")
    report = host["last_probe"]
    if report:
        took = duration(report["duration_ms"])
        when = short_time(report["at_ms"], now_ms=now_ms)
        lines.append(f"  probes    {report['depth'].replace('_', '-')} at {when}, {took}")
        lines += [f"            {_probe(probe)}" for probe in report["probes"]]
    if host.get("repair"):
        lines.append(f"  repair    {_repair(host['repair'], now_ms=now_ms)}")
    return lines


def _probe(probe: Json) -> str:
    where = f" ({probe['where']})" if probe["where"] else ""
    figures = ", ".join(f"{one['name']} {one['value']:.4g}" for one in probe["figures"])
    told = ": ".join(filter(None, (probe["detail"], figures)))
    verdict = probe["verdict"].replace("_", " ")
    return f"{probe['name']}{where} {verdict}{f': {told}' if told else ''}"


def _repair(repair: Json, *, now_ms: int) -> str:
    if repair["delivered_ms"]:
        return f"told at {short_time(repair['delivered_ms'], now_ms=now_ms)}"
    tries = f"after {repair['attempts']} tries: {repair['last_error']}"
    if repair["given_up_ms"]:
        return f"given up {tries}"
    return f"not told yet, {tries}" if repair["attempts"] else "not told yet"


def uncordon(
    context: typer.Context,
    name: HostName,
    now: Annotated[bool, typer.Option("--now", help="Without probes.")] = False,
) -> None:
    """Let a host be used again, once it has passed its probes.

    Ends a hold-out. After a failure of its own the host has to pass a burn-in of a minute,
    otherwise the quick probes.

    Examples:
      everstep hosts uncordon h3
      everstep hosts uncordon h3 --now
    """
    _uncordon(context, name, now=now)


def back(context: typer.Context, name: HostName) -> None:
    """End a maintenance: back through the probes.

    Example:
      everstep hosts back h3
    """
    _uncordon(context, name, now=False)


def _uncordon(context: typer.Context, name: str, *, now: bool) -> None:
    with session_of(context).client() as client:
        before = client.host(name)
        if not is_out(before):
            state = f"host {name} is {before['state']}, neither cordoned nor in maintenance"
            OUT.print(f"{state}: there is nothing to bring it back from", markup=False)
            return
        host = client.uncordon(name, now=now)
    if host.get("awaits"):
        probes = "a burn-in" if host["awaits"] == "burn_in" else "its probes"
        OUT.print(f"host {name} may be used again once it has passed {probes}", markup=False)
    else:
        OUT.print(f"host {name} may be used again", markup=False)


def maintain(
    context: typer.Context,
    name: HostName,
    reason: Annotated[str, typer.Option(help="Why; shown in `everstep hosts`.")] = "by hand",
    until: Annotated[
        str,
        typer.Option(
            help="When it may come back by itself, e.g. 2030-01-31T08:00 (this machine's time) or "
            "2030-01-31T08:00+01:00."
        ),
    ] = "",
) -> None:
    """Free a host for maintenance, and keep it free.

    Its job moves off it as soon as a spare can take its place, and runs on until then. `hosts back`
    returns it.

    Examples:
      everstep hosts maintain h3 --reason "new firmware"
      everstep hosts maintain h3 --until "$(date -d '+8 hours' +%FT%R)"
    """
    back_ms = until_ms(until, now_ms=SystemClock().now_ms())
    with session_of(context).client() as client:
        host = client.maintain(name, reason, back_ms)
    if host["state"] == "cordoned":
        OUT.print(f"host {name} is free: `everstep hosts back {name}` returns it", markup=False)
    else:
        OUT.print(
            f"job {host['job_id']} moves off {name} once a spare can take its place "
            f"(`everstep hosts show {name}`)",
            markup=False,
        )


def until_ms(text: str, *, now_ms: int) -> int:
    """Read a time to come; without a zone it is this machine's. Raises InvalidInput."""
    if not text:
        return 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"--until {text!r} is no time: write it as 2030-01-31T08:00") from None
    try:
        seconds = at.timestamp()
    except (ValueError, OverflowError):  # on the calendar's first or last day: hours do not matter
        seconds = at.replace(tzinfo=UTC).timestamp()
    at_ms = int(seconds * 1000)
    if at_ms <= now_ms:
        raise InvalidInput(
            f"--until {text!r} is {clock_time(at_ms)}, which is over: it is {clock_time(now_ms)}"
        )
    return at_ms


def add_care(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (show, uncordon, maintain, back):
        register(app, command)
