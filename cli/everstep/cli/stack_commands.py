"""``up``, ``down``, ``status``, ``logs``, ``kill`` and ``start``: the stack on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from everstep.cli import log_files
from everstep.cli.options import JsonFlag, register, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table
from everstep.cli.progress import UpProgress
from everstep.core.errors import InvalidInput
from everstep.core.ids import is_valid_id
from everstep.local import launch
from everstep.local.state import SERVICES, Stack

kill_app = typer.Typer(
    name="kill",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Break something on purpose, to see it recover.",
)
start_app = typer.Typer(
    name="start",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Start a host or service that was killed, or a new host.",
)
Count = Annotated[int, typer.Option(min=0, max=64)]


def up(
    context: typer.Context,
    hosts: Annotated[int, typer.Option(min=1, max=64, help="Hosts that jobs can fill.")] = 4,
    chips: Annotated[int, typer.Option(min=1, max=16, help="Chips (ranks) a host.")] = 2,
    spares: Annotated[int, typer.Option(min=0, max=64, help="Hosts that stand by.")] = 1,
    pods: Annotated[int, typer.Option(min=1, max=16, help="Failure domains of hosts.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Start the one-machine stack; already up is fine, and more hosts are added.

    Examples:
      everstep up
      everstep up --hosts 8 --chips 1 --spares 2
    """
    session = session_of(context)
    plan = launch.Plan(hosts=hosts, spares=spares, chips=chips, pods=pods)
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
    """Take the stack down; what jobs have stored is kept for the next `up`.

    Examples:
      everstep down
      everstep down --wipe
    """
    session = session_of(context)
    found = launch.down(session.paths, wipe=wipe)
    OUT.print("the stack is down" if found else "there was no stack to take down")
    if wipe:
        OUT.print(f"its data in {session.paths.root} is deleted")


def status(context: typer.Context, as_json: JsonFlag = False) -> None:
    """Show what runs: servers, services, agents, addresses.

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
    """Print the end of a log; without a name, list the logs.

    Examples:
      everstep logs
      everstep logs controller -f
      everstep logs h2 -n 200
      everstep logs demo-4f21ac/3
    """
    session = session_of(context)
    if not name:
        for path in log_files.all_logs(session.paths):
            OUT.print(str(path), markup=False)
        return
    path = log_files.find(session.paths, name)
    log_files.show(path, lines=lines, follow=follow)


def kill_host(context: typer.Context, name: str, as_json: JsonFlag = False) -> None:
    """Lose a whole host at once: agent, ranks and its memory. It stays down.

    Example:
      everstep kill host h2
    """
    done = _order(context, {"command": "kill", "what": "host", "name": name}, timeout_s=60.0)
    _say(done, as_json, f"host {name} is gone; `everstep start host {name}` brings it back, empty")


def kill_agent(context: typer.Context, name: str, as_json: JsonFlag = False) -> None:
    """Kill only the agent of a host; its ranks go on and a new agent takes over.

    Example:
      everstep kill agent h2
    """
    done = _order(context, {"command": "kill", "what": "agent", "name": name})
    _say(done, as_json, f"the agent of {name} is killed; it is started again at once")


def kill_rank(
    context: typer.Context,
    which: Annotated[
        list[str], typer.Argument(metavar="[JOB] RANK", help="The job, if several run; the rank.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Kill one rank's process.

    Examples:
      everstep kill rank 3
      everstep kill rank demo-4f21ac 3
    """
    *jobs, text = which
    if len(jobs) > 1 or not text.isdecimal():
        given = " ".join(which)
        raise InvalidInput(f"{given!r} names no rank: give a number, or a job and a number")
    job = jobs[0] if jobs else ""
    request = {"command": "kill", "what": "rank", "rank": int(text), "job": job}
    done = _order(context, request)
    _say(done, as_json, f"rank {text} of job {done['job']} on {done['host']} is killed")


def kill_service(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="controller, monitor, checkpoint-registry, host-inventory, nats, postgres or s3."
        ),
    ],
    stay_down: Annotated[bool, typer.Option("--down", help="Do not start it again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Kill a service or server with SIGKILL; it is started again at once.

    Examples:
      everstep kill service controller
      everstep kill service nats --down
    """
    request = {"command": "kill", "what": "service", "name": name, "down": stay_down}
    done = _order(context, request)
    after = (
        f"`everstep start service {name}` starts it" if stay_down else "it is started again at once"
    )
    _say(done, as_json, f"{name} is killed; {after}")


def start_host(context: typer.Context, name: str, as_json: JsonFlag = False) -> None:
    """Start a killed host again, empty, or a new one.

    Example:
      everstep start host h6
    """
    if not is_valid_id(name):
        raise InvalidInput(f"{name!r} is no host name: letters, digits, '-' and '_', 64 at most")
    done = _order(context, {"command": "start", "what": "host", "name": name}, timeout_s=120.0)
    _say(done, as_json, f"host {name} is up{_held_out(context, name)}")


def start_service(context: typer.Context, name: str, as_json: JsonFlag = False) -> None:
    """Start a service that was killed with --down.

    Example:
      everstep start service controller
    """
    done = _order(context, {"command": "start", "what": "service", "name": name}, timeout_s=120.0)
    _say(done, as_json, f"{name} runs")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (up, down, status, logs):
        register(app, command)
    for kill in (kill_host, kill_agent, kill_rank, kill_service):
        register(kill_app, kill, kill.__name__.removeprefix("kill_"))
    for start in (start_host, start_service):
        register(start_app, start, start.__name__.removeprefix("start_"))
    app.add_typer(kill_app)
    app.add_typer(start_app)


def _order(context: typer.Context, request: dict[str, Any], *, timeout_s: float = 30.0) -> Any:
    return launch.order(session_of(context).paths, request, timeout_s=timeout_s)


def _held_out(context: typer.Context, name: str) -> str:
    """Say so if the inventory still keeps a host from work."""
    with session_of(context).client() as client:
        host = next((one for one in client.hosts() if one["host_id"] == name), None)
    if host is None or host["state"] != "cordoned":
        return ""
    why = host.get("cordon_reason") or "unspecified"
    return f", but cordoned ({why}): `everstep hosts uncordon {name}` lets it be used again"


def _say(done: Any, as_json: bool, sentence: str) -> None:
    if as_json:
        print_json(done)
    else:
        OUT.print(sentence, markup=False)


def _counts(stack: Stack) -> str:
    chips = stack.hosts[0].chips if stack.hosts else 0
    return f"{len(stack.hosts)} hosts of {chips} chips, {stack.spares} of them to spare"


def _print_addresses(stack: Stack) -> None:
    for name in SERVICES:
        OUT.print(f"  {name.replace('_', '-'):<20} {stack.url(name)}/docs", markup=False)
    ERR.print("", end="")
