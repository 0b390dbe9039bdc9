"""``kill`` and ``start``: break parts of the stack on this machine, and bring them back."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from everstep.cli.options import HostName, JsonFlag, register, session_of
from everstep.cli.output import OUT, print_json
from everstep.core.errors import InvalidInput
from everstep.core.ids import is_valid_id
from everstep.local import launch

RANK_DIGITS_MAX: Final = 9  # a billion ranks are in no job

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
ServiceName = Annotated[
    str,
    typer.Argument(
        metavar="SERVICE",
        help="controller, monitor, checkpoint-registry, host-inventory, nats, postgres or s3.",
    ),
]


def kill_host(context: typer.Context, name: HostName, as_json: JsonFlag = False) -> None:
    """Lose a whole host and its memory at once.

    Its agent, its ranks and their snapshots are gone. It stays down until it is started again.

    Example:
      everstep kill host h2
    """
    done = _order(context, {"command": "kill", "what": "host", "name": name}, timeout_s=60.0)
    _say(done, as_json, f"host {name} is gone; `everstep start host {name}` brings it back, empty")


def kill_agent(context: typer.Context, name: HostName, as_json: JsonFlag = False) -> None:
    """Kill only the agent of a host.

    Its ranks go on, and a new agent takes over.

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
    if len(jobs) > 1 or not text.isdecimal() or len(text) > RANK_DIGITS_MAX:
        given = " ".join(which)
        raise InvalidInput(f"{given!r} names no rank: give a number, or a job and a number")
    job = jobs[0] if jobs else ""
    request = {"command": "kill", "what": "rank", "rank": int(text), "job": job}
    done = _order(context, request)
    _say(done, as_json, f"rank {text} of job {done['job']} on {done['host']} is killed")


def kill_service(
    context: typer.Context,
    name: ServiceName,
    stay_down: Annotated[bool, typer.Option("--down", help="Do not start it again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Kill a service or server with SIGKILL.

    It is started again at once, unless --down is given.

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


def start_host(context: typer.Context, name: HostName, as_json: JsonFlag = False) -> None:
    """Start a killed host again, empty, or a new one.

    Example:
      everstep start host h6
    """
    if not is_valid_id(name):
        raise InvalidInput(f"{name!r} is no host name: letters, digits, '-' and '_', 64 at most")
    done = _order(context, {"command": "start", "what": "host", "name": name}, timeout_s=120.0)
    _say(done, as_json, f"host {name} is up{_held_out(context, name)}")


def start_service(context: typer.Context, name: ServiceName, as_json: JsonFlag = False) -> None:
    """Start a service that was killed with --down.

    Example:
      everstep start service controller
    """
    done = _order(context, {"command": "start", "what": "service", "name": name}, timeout_s=120.0)
    _say(done, as_json, f"{name} runs")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
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
