"""Reads what the kernel tells of a process (proc_pid_stat(5) and its neighbours).

A process may end between two reads: every question then has the answer of one that is gone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICK_MS: Final = 1_000 / os.sysconf(
    "SC_CLK_TCK"
)  # the grain of processor times, 10 ms nearly always

GONE: Final = "X"
STOPPED: Final = "T"
TRACED: Final = "t"
# In ``stat`` behind the name: the state is the first field there, utime and stime follow later.
_UTIME: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """A process at one moment.

    Args:
        state: of its main thread, as ``ps`` writes it; ``GONE`` for a zombie too.
        cpu_ms: processor time of its main thread so far.
        process_cpu_ms: of all its threads.
        io_bytes: read and written by system calls so far; 0 where that is not told.
    """

    state: str
    cpu_ms: int = 0
    process_cpu_ms: int = 0
    io_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Bit masks of signal numbers less one: of the process, and of its main thread."""

    caught: int = 0
    blocked: int = 0
    pending: int = 0


def glance(pid: int) -> Glance:
    """Look at a process."""
    process = _stat(f"/proc/{pid}/stat")
    if not process or process[0] in {"Z", "X", "x"}:
        return Glance(state=GONE)
    main = _stat(f"/proc/{pid}/task/{pid}/stat") or process
    io = _fields(f"/proc/{pid}/io")
    return Glance(
        state=process[0],
        cpu_ms=_cpu_ms(main),
        process_cpu_ms=_cpu_ms(process),
        io_bytes=int(io.get("rchar", "0")) + int(io.get("wchar", "0")),
    )


def signals(pid: int) -> Signals:
    """Return which signals a process catches, and which wait for its main thread."""
    found = _fields(f"/proc/{pid}/status")
    masks = {
        name: int(found.get(name, "0"), 16) for name in ("SigCgt", "SigBlk", "SigPnd", "ShdPnd")
    }
    return Signals(
        caught=masks["SigCgt"],
        blocked=masks["SigBlk"],
        pending=masks["SigPnd"] | masks["ShdPnd"],
    )


def waits_in(pid: int) -> str:
    """Return the kernel's function that the main thread sleeps in, "" where that is not told."""
    name = _text(f"/proc/{pid}/wchan")
    return "" if name == "0" else name


def _cpu_ms(stat: list[str]) -> int:
    return round((int(stat[_UTIME]) + int(stat[_UTIME + 1])) * TICK_MS)


def _stat(path: str) -> list[str]:
    """Return the fields behind the name, which may hold anything."""
    return _text(path).rpartition(")")[2].split()


def _fields(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(path).splitlines())
    return {name: value.strip() for name, _, value in lines}


def _text(path: str) -> str:
    """Return what a file holds, "" when its process is gone or it is not ours to read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
