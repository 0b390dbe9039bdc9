"""Says whether a host's memory holds what it would have to keep, before any of it is there.

A rank keeps two slots and one that is uploaded; its host keeps two copies for each rank of a peer.
How large those are only ranks know, and only when their state is built, so each declares its part
in a file beside its slots and looks at what the others have declared: whoever declares last sees
the whole. Copies are counted as large as this host's own slots on average; a peer that is larger is
refused room when it pushes (``no_space``), and its ranks go on without copies.

Rejected: finding out by running out. On tmpfs that is an error in the middle of a run at best, and
the machine's out-of-memory killer at worst.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from everstep.memory.full import replace_file
from everstep.memory.layout import SLOT_COUNT, is_old, job_dir, rank_dir

# What must stay free: control files, other writers' headers, the ranks' own use of shared memory.
# Chosen, not measured.
HEADROOM_BYTES: Final = 64 << 20
_GB: Final = 1e9
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's own are (stat(2))
_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMINFO: Final = Path("/proc/meminfo")


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank of ``generation`` keeps [bytes]: ``slot`` twice, ``durable`` once."""

    generation: int
    slot: int
    durable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much [bytes] the job may have, what it has already included, and what sets that."""

    bytes: int
    name: str


def declare(
    memory_dir: Path, job_id: str, rank: int, demand: Demand, host_ranks: Sequence[int]
) -> list[Demand]:
    """Write down a rank's demand; returns what the host's ranks have declared so far.

    Raises:
        Unavailable: there is no room even for that.
    """
    written = rank_dir(memory_dir, job_id, rank) / "demand"
    replace_file(written, msgspec.msgpack.encode(demand))
    found: list[Demand] = []
    for other in sorted({*host_ranks, rank}):
        path = rank_dir(memory_dir, job_id, other) / "demand"
        try:
            one = msgspec.msgpack.decode(path.read_bytes(), type=Demand)
        except FileNotFoundError:
            continue
        if one.generation == demand.generation:
            found.append(one)
    return found


def shortage(
    demands: Sequence[Demand], *, rank_count: int, replica_count: int, limit: Limit
) -> str | None:
    """Return why the host is too small, None when it is not or when that is not known yet.

    Args:
        demands: of its ranks so far; at least one.
        rank_count: all of them.
        replica_count: ranks of other hosts whose copies lie here.
        limit: of the host.
    """
    own = sum(SLOT_COUNT * one.slot + one.durable for one in demands)
    average = sum(one.slot for one in demands) / len(demands)
    copies = round(SLOT_COUNT * average * replica_count)
    needed = own + copies + HEADROOM_BYTES
    if needed <= limit.bytes:
        return None
    missing = rank_count - len(demands)
    more = f" (and {missing} that have not said what they need)" if missing > 0 else ""
    kept = (
        f", and about {_gb(copies)} for {SLOT_COUNT} copies of each of {replica_count} ranks of "
        "other hosts"
        if replica_count
        else ""
    )
    return (
        f"{len(demands)} ranks here{more} need {_gb(own)} of memory for {SLOT_COUNT} snapshots and "
        f"one that is uploaded each{kept}: {_gb(needed)} in all, where {limit.name} allows "
        f"{_gb(limit.bytes)}. Give it more, or spread the state over more ranks (dp_shard, tp, pp)"
    )


def limit_of(memory_dir: Path, job_id: str) -> Limit:
    """Return what a job may have of the host's memory: the tightest of the limits there are."""
    there = _allocated(job_dir(memory_dir, job_id))
    status = os.statvfs(memory_dir)
    limits = [
        Limit(
            bytes=status.f_bavail * status.f_frsize + there,
            name=f"the file system of {memory_dir} (df; mount -o remount,size=)",
        )
    ]
    available = _available()
    if available is not None:
        limits.append(Limit(bytes=available + there, name="the machine's free memory"))
    granted = _granted()
    if granted is not None:
        limits.append(Limit(bytes=granted + there, name="the control group's memory.max"))
    return min(limits, key=lambda one: one.bytes)


def free_bytes() -> int:
    """Return what may be taken of the machine's memory now; 0 if nothing tells."""
    return max(min(filter(None, (_available(), _granted())), default=0), 0)


def _allocated(directory: Path) -> int:
    """Return the bytes that files below a directory really take; some may go meanwhile."""
    found = 0
    for folder, folders, names in os.walk(directory):
        # What ranks of another layout left stays until the new ones' state is safe: no room of
        # theirs.
        folders[:] = [name for name in folders if not is_old(name)]
        for name in names:
            try:
                found += Path(folder, name).stat().st_blocks * _BLOCK_BYTES
            except FileNotFoundError:
                continue
    return found


def _available() -> int | None:
    """Return what Linux estimates that may be taken without swapping."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _granted() -> int | None:
    """Return what the control group (version 2) leaves; its cached files count as free."""
    try:
        most = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):
        return None
    if most == "max":
        return None
    cached = [int(line.split()[1]) for line in lines if line.startswith("inactive_file ")]
    return int(most) - used + sum(cached)


def _gb(count: float) -> str:
    return f"{count / _GB:,.1f} GB"
