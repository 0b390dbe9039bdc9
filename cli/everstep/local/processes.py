"""Finds and ends processes that this stack started, and no others.

A pid alone may have been given to somebody else since, so a process is known by pid and start
time. What a process forked without telling us carries the random id of the stack in its
environment. Both ways together leave no orphan behind, even after the supervisor itself was killed.
Nothing is ever ended by its name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from everstep.local.state import ProcessRecord

STACK_VARIABLE: Final = "EVERSTEP_STACK_ID"  # in the environment of all that a stack starts
HOST_VARIABLE: Final = "EVERSTEP_HOST_ID"
START_TOLERANCE_MS: Final = 20  # the kernel counts in 10 ms ticks since boot; twice that
POLL_S: Final = 0.02  # a person does not see it, and it costs nothing for a handful of processes
GONE_TIMEOUT_S: Final = 10.0  # SIGKILL acts within milliseconds; more is a stuck disk


def record_of(name: str, pid: int) -> ProcessRecord | None:
    """Return what identifies a running process; None if there is none (or only its corpse)."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessRecord(name=name, pid=pid, started_ms=int(process.create_time() * 1000))
    except psutil.NoSuchProcess:
        return None


def is_alive(record: ProcessRecord) -> bool:
    """Say whether exactly this process still runs."""
    now = record_of(record.name, record.pid)
    return now is not None and abs(now.started_ms - record.started_ms) <= START_TOLERANCE_MS


def read_pid_file(name: str, path: Path) -> ProcessRecord | None:
    """Return the process that a pid file names; None if it is absent, unreadable or stale.

    A process that started after the file was last written is somebody else's.
    """
    try:
        pid = int(path.read_text().split()[0])
        written_ms = int(path.stat().st_mtime * 1000)
    except (OSError, ValueError, IndexError):
        return None
    record = record_of(name, pid)
    if record is None or record.started_ms > written_ms + START_TOLERANCE_MS:
        return None
    return record


def descendants(record: ProcessRecord) -> list[ProcessRecord]:
    """Return the children of a process and theirs."""
    try:
        children = psutil.Process(record.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = (record_of(f"{record.name}/child", child.pid) for child in children)
    return [child for child in found if child is not None]


def marked(stack_id: str, host_id: str | None = None) -> list[ProcessRecord]:
    """Return all processes whose environment says that they belong to the stack (and host)."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue  # another user's, or gone
        if environment.get(STACK_VARIABLE) != stack_id:
            continue
        if host_id is not None and environment.get(HOST_VARIABLE) != host_id:
            continue
        record = record_of(environment.get(HOST_VARIABLE) or "stack", process.pid)
        if record is not None and record.pid != os.getpid():
            found.append(record)
    return found


def send_signal(records: Iterable[ProcessRecord], number: signal.Signals) -> None:
    """Send a signal to all of them, as close together as possible."""
    alive = [record.pid for record in records if is_alive(record)]
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(records: Iterable[ProcessRecord], *, timeout_s: float) -> list[ProcessRecord]:
    """Wait until they have ended; return those that have not.

    Looks at the process table instead of waiting for children: reaping them is the business of
    whoever started them.
    """
    left = [record for record in records if is_alive(record)]
    deadline_s = time.monotonic() + timeout_s
    while left and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        left = [record for record in left if is_alive(record)]
    return left


def kill_all(records: Iterable[ProcessRecord]) -> list[ProcessRecord]:
    """SIGKILL all of them and wait; return those that are still there."""
    wanted = list(records)
    send_signal(wanted, signal.SIGKILL)
    return wait_gone(wanted, timeout_s=GONE_TIMEOUT_S)
