"""Finds and prints the logs of a stack."""

from __future__ import annotations

import sys
import time
from collections import deque
from glob import escape
from pathlib import Path
from typing import Final

from everstep.core.errors import NotFoundError
from everstep.local.state import StatePaths

POLL_S: Final = 0.3


def all_logs(paths: StatePaths) -> list[Path]:
    """Return every log file: of processes first, then of hosts' ranks."""
    return sorted(paths.logs.glob("*.log")) + sorted((paths.root / "hosts").rglob("*.log"))


def find(paths: StatePaths, name: str) -> Path:
    """Return the log that ``name`` means.

    A process's name, ``JOB/RANK`` for a rank's newest, or the end of a path that ``everstep logs``
    lists.

    Raises:
        NotFoundError: none or several fit.
    """
    direct = paths.log(name.replace("-", "_"))
    if direct.exists():
        return direct
    job, _, rank = name.rpartition("/")
    if rank.isdecimal():
        of_rank = (paths.root / "hosts").glob(f"*/logs/{escape(job)}/gen-*/rank-{rank}.log")
        newest = max(of_rank, key=lambda path: path.stat().st_mtime_ns, default=None)
        if newest is not None:
            return newest
    fits = [path for path in all_logs(paths) if _ends_like(path, name)]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise NotFoundError(f"no log named {name!r}: `everstep logs` lists them")
    raise NotFoundError(
        f"{name!r} fits {len(fits)} logs, e.g. {fits[0]} and {fits[1]}: give more of the path"
    )


def show(path: Path, *, lines: int, follow: bool) -> None:
    """Print the last ``lines`` lines, and what comes after them if asked, until interrupted."""
    with path.open(encoding="utf-8", errors="replace") as file:
        sys.stdout.writelines(deque(file, maxlen=min(lines, sys.maxsize)))
        sys.stdout.flush()
        while follow:
            line = file.readline()
            if line:
                sys.stdout.write(line)
                sys.stdout.flush()
            else:
                time.sleep(POLL_S)


def _ends_like(path: Path, name: str) -> bool:
    whole = str(path)
    return whole == name or whole.endswith((f"/{name}", f"/{name}.log"))
