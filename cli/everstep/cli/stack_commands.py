"""``up``, ``down``, ``status`` and ``logs``: the stack on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from everstep.cli import log_files
from everstep.cli.client import Client
from everstep.cli.options import JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT, counted, print_json, print_table
from everstep.cli.position import ENDED
from everstep.cli.progress import UpProgress
from everstep.core.errors import EverstepError
from everstep.local import launch
from everstep.local.state import SERVICES, Stack, StatePaths


def up(
    context: typer.Context,
    hosts: Annotated[int, typer.Option(min=1, max=64, help="Hosts that jobs can fill.")] = 4,
    chips: Annotated[int, typer.Option(min=1, max=16, help="Chips (ranks) a host.")] = 2,
    spares: Annotated[int, typer.Option(min=0, max=64, help="Hosts that stand by.")] = 1,
    pods: Annotated[int, typer.Option(min=1, max=16, help="Failure domains of hosts.")] = 2,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Let `everstep chaos` inject faults into it.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start the one-machine stack.

    If it is up already, it stays as it is and gets the hosts that are still missing.

    Examples:
      everstep up
      everstep up --hosts 8 --chips 1 --spares 2
    """
    session = session_of(context)
    plan = launch.Plan(hosts=hosts, spares=spares, chips=chips, pods=pods, chaos=chaos)
    with UpProgress(quiet=as_json) as progress:
        result = launch.up(session.paths, plan, progress.show)
    addresses = {name: result.stack.url(name) for name in SERVICES}
    if as_json:
        print_json({"was_up": result.was_up, "added": result.added, "services": addresses})
        return
    if not result.was_up:
        OUT.print(f"the stack is up: {_counts(result.stack)}")
    elif result.added:
        OUT.print(f"the stack was up already; added {', '.join(result.added)}")
    else:
        OUT.print(f"the stack is up already: {_counts(result.stack)}")
    _print_addresses(result.stack)


def down(
    context: typer.Context,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Also delete all data: databases, checkpoints, logs.")
    ] = False,
) -> None:
    """Take the stack down.

    What jobs have stored is kept: those that run now go on from their last checkpoint after the
    next `up`. With --wipe nothing is kept.

    Examples:
      everstep down
      everstep down --wipe
    """
    paths = session_of(context).paths
    _warn_of_jobs(paths, wipe=wipe)
    data = wipe and launch.has_data(paths)
    original = "" if wipe else launch.original_of(paths)
    found = launch.down(paths, wipe=wipe)
    if data:
        OUT.print(
            f"{'the stack is down, and ' if found else ''}its data in {paths.root} is deleted"
        )
    elif found:
        OUT.print("the stack is down")
    elif wipe and paths.root.exists():
        OUT.print(f"no stack has run in {paths.root}: nothing there is deleted", markup=False)
    else:
        of = f", which is a copy of {original}" if original else ""
        OUT.print(f"no stack runs in {paths.root}{of}: there is nothing to take down", markup=False)


def status(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show servers, services, agents, addresses.

    Example:
      everstep status --json
    """
    session = session_of(context)
    stack = launch.require_stack(session.paths)
    state = launch.order(session.paths, {"command": "status"})
    if as_json:
        services = {name: stack.url(name) for name in SERVICES}
        print_json({**state, "state_directory": str(session.paths.root), "services": services})
        return
    doing = f" ({state['doing']})" if state["doing"] else ""
    problem = f": {state['problem']}" if state["problem"] else ""
    OUT.print(f"stack {state['phase']}{doing}{problem}; state in {session.paths.root}")
    rows = [
        [unit["name"], unit["kind"], unit["state"], unit["pid"], unit["restarts"], unit["last_end"]]
        for unit in state["units"]
    ]
    columns = ["name", "kind", "state", "pid", "restarts", "last end"]
    print_table(columns, rows, empty="nothing runs yet")
    _print_addresses(stack)


def logs(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A process of `everstep status`, or a job's rank: JOB/RANK.")
    ] = "",
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many last lines.")] = 50,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
) -> None:
    """Print the end of a log, or list the logs.

    Examples:
      everstep logs
      everstep logs controller -f
      everstep logs h2 -n 200
      everstep logs demo-4f21ac/3
    """
    session = session_of(context)
    if not name:
        found = log_files.all_logs(session.paths)
        if not found:
            ERR.print(f"no logs in {session.paths.root}: no stack has run there", markup=False)
        for path in found:
            OUT.print(str(path), markup=False)
        return
    path = log_files.find(session.paths, name)
    log_files.show(path, lines=lines, follow=follow)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, down, status, logs):
        register(app, command)


def _warn_of_jobs(paths: StatePaths, *, wipe: bool) -> None:
    """Name the jobs that are cut short; if the controller is away, go on without."""
    try:
        stack = launch.running_stack(paths)
        if stack is None:
            return
        with Client({name: stack.url(name) for name in SERVICES}) as client:
            live = [job["job_id"] for job in client.jobs() if job["phase"] not in ENDED]
            fates = {one: "lost with all data" if wipe else _fate(client, one) for one in live}
    except EverstepError:
        return
    for job_id, fate in fates.items():
        ERR.print(f"job {job_id} is {fate}", markup=False)


def _fate(client: Client, job_id: str) -> str:
    """Say from where an interrupted job goes on: what is in memory only goes with its hosts."""
    fate = "interrupted, and will go on after `everstep up`"
    try:
        complete = [one for one in client.checkpoints(job_id) if one["complete"]]
    except EverstepError:  # the registry is away
        return fate
    if not complete:
        return f"{fate}, from its beginning"
    kept = [one["step"] for one in complete if one["restorable"]]
    return f"{fate}, from step {max(kept)}, its newest checkpoint" if kept else fate


def _counts(stack: Stack) -> str:
    chips = stack.hosts[0].chips if stack.hosts else 0
    hosts = counted(len(stack.hosts), "host")
    return f"{hosts} of {counted(chips, 'chip')}, {stack.spares} of them to spare"


def _print_addresses(stack: Stack) -> None:
    for name in SERVICES:
        OUT.print(f"  {name.replace('_', '-'):<20} {stack.url(name)}/docs", markup=False)
    ERR.print("", end="")
