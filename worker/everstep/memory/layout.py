"""Where snapshots lie in a host's memory.

::

    <memory_dir>/<job_id>/generation          the generation the host is fenced at
                          rank-<r>/slot-0     a rank's own snapshots
                                   slot-1
                                   durable    the one being uploaded
                                   control    words shared by rank and agent
                          replica-<r>/slot-0  copies kept for a peer host's rank
                                      slot-1
                          layout              of the ranks whose snapshots these are
                          old-<g>-<n>/        what ranks of another layout left, set aside when
                              rank-<r>/       generation g began; kept until the new ranks' state
                              replica-<r>/    is safe
                          old-<g>/rank-<r>/   the same, brought here from elsewhere

``memory_dir`` is on tmpfs: it outlives processes and dies with the host, which is the point.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from everstep.memory.full import replace_file

SLOT_COUNT: Final = 2  # one is always complete while the other is being written
_OLD: Final = "old-"


def job_dir(memory_dir: Path, job_id: str) -> Path:
    """Return the directory of all of a job's snapshots on this host."""
    return memory_dir / job_id


def rank_dir(memory_dir: Path, job_id: str, rank: int) -> Path:
    """Return the directory of a rank's own snapshots."""
    return memory_dir / job_id / f"rank-{rank}"


def replica_dir(memory_dir: Path, job_id: str, rank: int) -> Path:
    """Return the directory of the copies kept for a rank of another host."""
    return memory_dir / job_id / f"replica-{rank}"


def old_dir(memory_dir: Path, job_id: str, generation: int) -> Path:
    """Return where what a generation needs of ranks of another layout is brought."""
    return memory_dir / job_id / f"{_OLD}{generation}"


def old_dirs(memory_dir: Path, job_id: str) -> list[Path]:
    """Return every directory of what ranks of other layouts left, the newest first."""
    found = [
        entry
        for entry in _entries(job_dir(memory_dir, job_id))
        if entry.name.startswith(_OLD) and entry.is_dir()
    ]
    return sorted(found, key=lambda one: tuple(map(int, one.name.split("-")[1:])), reverse=True)


def is_old(name: str) -> bool:
    """Say whether a directory of this name belongs to ranks of another layout."""
    return name.startswith(_OLD)


def slot_path(directory: Path, slot: int) -> Path:
    """Return the path of slot 0 or 1 in a rank's or replica's directory."""
    return directory / f"slot-{slot}"


def durable_path(directory: Path) -> Path:
    """Return the path of the snapshot that is kept still while it is uploaded."""
    return directory / "durable"


def control_path(directory: Path) -> Path:
    """Return the path of the words that rank and agent share."""
    return directory / "control"


def ranks_in(memory_dir: Path, job_id: str, *, own: bool) -> Iterator[tuple[int, Path]]:
    """Yield ``(rank, directory)`` of the ranks that have a directory here, sorted by rank."""
    yield from ranks_under(job_dir(memory_dir, job_id), own=own)


def ranks_under(directory: Path, *, own: bool) -> Iterator[tuple[int, Path]]:
    """Yield ``(rank, directory)`` of the ranks that have one below, sorted by rank."""
    prefix = "rank-" if own else "replica-"
    found: list[tuple[int, Path]] = []
    for entry in _entries(directory):
        number = entry.name.removeprefix(prefix)
        if number != entry.name and number.isdecimal():
            found.append((int(number), entry))
    yield from sorted(found)


def read_fence(memory_dir: Path, job_id: str) -> int:
    """Return the highest generation that the host was fenced at for this job, -1 if never."""
    try:
        return int((job_dir(memory_dir, job_id) / "generation").read_text())
    except FileNotFoundError:
        return -1


def write_fence(memory_dir: Path, job_id: str, generation: int) -> int:
    """Raise the fence to ``generation``, never lower it; returns the fence that now holds.

    A reader sees the old or the new number.

    Raises:
        Unavailable: there is no room for the job's first file here.
    """
    current = read_fence(memory_dir, job_id)
    if generation <= current:
        return current
    replace_file(job_dir(memory_dir, job_id) / "generation", str(generation).encode())
    return generation


def _entries(directory: Path) -> list[Path]:
    """Return what lies in a directory; nothing if it is not there."""
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
