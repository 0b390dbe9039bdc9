"""Removes what a stack has left behind: processes without a supervisor, and host memory.

Used at the end of an orderly stop, where it finds nothing, and by ``up`` and ``down`` after the
supervisor itself was killed, where it finds everything.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Final

from everstep.local import hosts, processes
from everstep.local.state import ProcessRecord, Stack, StatePaths

ORDERLY_TIMEOUT_S: Final = 5.0  # servers flush and end within a second; SIGKILL follows


def leftovers(paths: StatePaths, stack: Stack) -> list[ProcessRecord]:
    """Return every living process of the stack, the supervisor apart."""
    found = {record.pid: record for record in stack.processes if processes.is_alive(record)}
    for record in processes.marked(stack.stack_id):
        found.setdefault(record.pid, record)
    for host in stack.hosts:
        for record in hosts.members(paths, stack, host.host_id):
            found.setdefault(record.pid, record)
    if stack.supervisor is not None:
        found.pop(stack.supervisor.pid, None)
    return list(found.values())


def sweep(paths: StatePaths, stack: Stack) -> int:
    """End all leftovers and drop the stack's host memory; return how many processes there were."""
    found = leftovers(paths, stack)
    servers = [record for record in found if record.name in ("postgres", "nats", "s3")]
    others = [record for record in found if record not in servers]
    processes.kill_all(others)
    # Servers keep files that outlive them: a moment to close them spares a repair later.
    processes.send_signal(servers, signal.SIGINT)
    processes.wait_gone(servers, timeout_s=ORDERLY_TIMEOUT_S)
    processes.kill_all(servers)
    for host in stack.hosts:
        hosts.forget_run_files(paths, host.host_id)
    shutil.rmtree(Path(stack.memory_root), ignore_errors=True)
    return len(found)
