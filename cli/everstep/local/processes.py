"""Finds and ends processes that this stack started, and no others.

A pid alone may have been given to somebody else since, so a process is known by its pid, its start
time in kernel ticks and the machine's boot. What a process forked without telling us carries the
random id of the stack in its environment. Both ways together leave no orphan behind, even after the
supervisor itself was killed. Nothing is ever ended by its name.

Reads /proc directly. Rejected: psutil's ``create_time``, which adds the boot time in whole seconds;
the kernel computes that anew at each look, so it may differ by a second from one look to the next.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from everstep.core.system import SystemClock
from everstep.local.state import ProcessRecord

STACK_VARIABLE: Final = "EVERSTEP_STACK_ID"  # in the environment of all that a stack starts
HOST_VARIABLE: Final = "EVERSTEP_HOST_ID"
# A pid file is written soon after its process began. Clocks are stepped by less than this, and a
# pid is not given out again before all others were.
PID_FILE_SLACK_MS: Final = 2_000
POLL_S: Final = 0.02  # a person does not see it, and it costs nothing for a handful of processes
GONE_TIMEOUT_S: Final = 10.0  # SIGKILL acts within milliseconds; more is a stuck disk
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stat:
    """What /proc/<pid>/stat says, as far as it concerns us; see proc_pid_stat(5)."""

    state: str
    parent: int
    start_ticks: int


def record_of(name: str, pid: int) -> ProcessRecord | None:
    """Return what identifies a running process; None if there is none, or only its corpse."""
    stat = _stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    return ProcessRecord(name=name, pid=pid, start_ticks=stat.start_ticks, boot_id=_boot_id())


def is_alive(record: ProcessRecord) -> bool:
    """Say whether exactly this process still runs."""
    return record_of(record.name, record.pid) == record


def started_ms(record: ProcessRecord) -> int:
    """Return when a process of this boot began [ms since the epoch, by today's clock]."""
    booted_ms = SystemClock().now_ms() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return booted_ms + record.start_ticks * 1000 // os.sysconf("SC_CLK_TCK")


def read_pid_file(name: str, path: Path) -> ProcessRecord | None:
    """Return the process that a pid file names; None if it is absent, unreadable or stale.

    A process that began after the file was last written is somebody else's.
    """
    try:
        pid = int(path.read_text().split()[0])
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except (OSError, ValueError, IndexError):
        return None
    record = record_of(name, pid)
    if record is None or started_ms(record) > written_ms + PID_FILE_SLACK_MS:
        return None
    return record


def descendants(record: ProcessRecord) -> list[ProcessRecord]:
    """Return the children of a process and theirs."""
    if not is_alive(record):
        return []
    children = defaultdict(list)
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            children[stat.parent].append(pid)
    found, open_ends = [], [record.pid]
    while open_ends:
        for pid in children[open_ends.pop()]:
            open_ends.append(pid)
            child = record_of(f"{record.name}/child", pid)
            if child is not None:
                found.append(child)
    return found


def marked(stack_id: str, host_id: str | None = None) -> list[ProcessRecord]:
    """Return all processes whose environment says that they belong to the stack (and host)."""
    stack = f"{STACK_VARIABLE}={stack_id}".encode()
    host = f"{HOST_VARIABLE}={host_id}".encode() if host_id is not None else stack
    found = []
    for pid in _pids():
        try:
            environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # another user's, or gone
        record = record_of("marked", pid) if stack in environment and host in environment else None
        if record is not None and pid != os.getpid():
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


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return _Stat(state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]))


@cache
def _boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()
