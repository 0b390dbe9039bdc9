"""Puts a stack back in order after faults: every job ended, every host a spare again."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

from everstep.cli.client import Client
from everstep.cli.position import ENDED
from everstep.core.errors import EverstepError, RefusedError, Unavailable
from everstep.local import launch
from everstep.local.state import SERVERS, SERVICES, StatePaths

POLL_S: Final = 0.1
PATIENCE_S: Final = 150.0  # hosts come back within seconds; other work may share the machine


def heal(paths: StatePaths, client: Client, *, patience_s: float = PATIENCE_S) -> None:
    """End every job and bring every host back as a spare, whatever it was cordoned for.

    Raises:
        Unavailable: it is not in order in time.
    """
    stack = launch.require_stack(paths)
    if stack.chaos:
        launch.order(paths, {"command": "chaos", "what": "heal"})
    running = {unit["name"]: unit for unit in launch.order(paths, {"command": "status"})["units"]}
    for name in (*SERVERS, *SERVICES):
        if running[name]["state"] == "stopped":
            launch.order(paths, {"command": "start", "what": "service", "name": name})
    deadline_s = time.monotonic() + patience_s
    while not _jobs_have_ended(client):
        _wait(deadline_s, "jobs do not end")
    hosts = launch.require_stack(paths).hosts
    down = [host.host_id for host in hosts if host.down]
    launch.order(paths, {"command": "start", "what": "hosts", "names": down}, timeout_s=patience_s)
    names = {host.host_id for host in hosts}
    while not names <= _spares(client):
        _wait(deadline_s, f"hosts {', '.join(sorted(names - _spares(client)))} are no spares")


def _jobs_have_ended(client: Client) -> bool:
    try:
        live = [job for job in client.jobs() if job["phase"] not in ENDED]
        for job in live:
            client.act(job["job_id"], "stop")
    except EverstepError:
        return False
    return not live


def _spares(client: Client) -> set[str]:
    try:
        hosts: list[dict[str, Any]] = client.hosts()
    except Unavailable:
        return set()
    for host in hosts:
        if host["state"] == "cordoned":
            with contextlib.suppress(RefusedError, Unavailable):
                client.uncordon(host["host_id"], now=True)
    return {host["host_id"] for host in hosts if host["state"] == "spare"}


def _wait(deadline_s: float, what: str) -> None:
    if time.monotonic() > deadline_s:
        raise Unavailable(f"the stack is not in order: {what}")
    time.sleep(POLL_S)
