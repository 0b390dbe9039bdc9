"""Looks at processes that are not our children, and at what they left in their logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Final

LOG_TAIL_BYTES: Final = 4_096  # a traceback and the lines before it
LOOK_S: Final = 0.02


def is_running(pid: int) -> bool:
    """Say whether a process lives; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


async def wait_gone(pid: int, timeout_s: float) -> bool:
    """Return whether a process is gone, at the latest after ``timeout_s``."""
    for _ in range(int(timeout_s / LOOK_S)):
        if not is_running(pid):
            return True
        await asyncio.sleep(LOOK_S)  # not our child: nothing would wake us
    return not is_running(pid)


def kill_session(pid: int) -> None:
    """Kill a process and the group that it leads."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def log_tail(path: Path) -> str:
    """Return the end of a log, "" when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
