"""What makes up one host of the stack on this machine, and how to lose all of it at once.

A host here is an agent, its fork server, the ranks that it forked, and a directory of host memory.
Losing a host means that all four are gone at the same moment, with no chance to say goodbye.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everstep.local import processes
from everstep.local.state import ProcessRecord, Stack, StatePaths

# A rank writes to its own log and, with the SDK, keeps its snapshots mapped: both paths name it.
RANK_LOG: Final = re.compile(r"/(?P<job>[A-Za-z0-9_-]+)/gen-\d+/rank-(?P<rank>\d+)\.log$")
RANK_MAPPING: Final = re.compile(r"/(?P<job>[A-Za-z0-9_-]+)/rank-(?P<rank>\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """A running rank."""

    job_id: str
    rank: int
    record: ProcessRecord


def memory_dir(stack: Stack, host_id: str) -> Path:
    """Return where the host keeps snapshots."""
    return Path(stack.memory_root) / host_id


def members(paths: StatePaths, stack: Stack, host_id: str) -> list[ProcessRecord]:
    """Return every process of a host, the agent first."""
    run_dir = paths.run_dir(host_id)
    agent = read_agent(paths, host_id)
    fork_server = processes.read_pid_file(f"{host_id}/fork_server", run_dir / "fork_server.pid")
    found = [record for record in (agent, fork_server) if record is not None]
    if fork_server is not None:
        found += processes.descendants(fork_server)
    known = {record.pid for record in found}
    marked = processes.marked(stack.stack_id, host_id)
    return found + [record for record in marked if record.pid not in known]


def read_agent(paths: StatePaths, host_id: str) -> ProcessRecord | None:
    """Return the host's agent process."""
    return processes.read_pid_file(f"{host_id}/agent", paths.run_dir(host_id) / "agent.pid")


def ranks(paths: StatePaths, host_id: str) -> list[RankProcess]:
    """Return the ranks that run on a host, in order.

    A rank is seen from the moment on that its output goes to its own log.
    """
    server = processes.read_pid_file(
        f"{host_id}/fork_server", paths.run_dir(host_id) / "fork_server.pid"
    )
    if server is None:
        return []
    found = []
    for child in processes.descendants(server):
        named = _rank_of(child.pid)
        if named is not None:
            found.append(RankProcess(job_id=named[0], rank=named[1], record=child))
    return sorted(found, key=lambda rank: (rank.job_id, rank.rank))


def lose(paths: StatePaths, stack: Stack, host_id: str) -> list[ProcessRecord]:
    """SIGKILL the whole host and drop its memory; return what refused to die (nothing, usually)."""
    doomed = members(paths, stack, host_id)
    left = processes.kill_all(doomed)
    # A rank forked between look and kill dies with its fork server; look again all the same.
    left += processes.kill_all(processes.marked(stack.stack_id, host_id))
    shutil.rmtree(memory_dir(stack, host_id), ignore_errors=True)
    forget_run_files(paths, host_id)
    return left


def forget_run_files(paths: StatePaths, host_id: str) -> None:
    """Remove sockets and pid files of a host that is gone; its logs stay."""
    for pattern in ("*.sock", "*.pid"):
        for path in paths.run_dir(host_id).glob(pattern):
            path.unlink(missing_ok=True)


def _rank_of(pid: int) -> tuple[str, int] | None:
    process = Path(f"/proc/{pid}")
    try:
        match = RANK_LOG.search(str((process / "fd/1").readlink()))
        match = match or RANK_MAPPING.search((process / "maps").read_text())
    except OSError:
        return None  # ended meanwhile
    return (match["job"], int(match["rank"])) if match is not None else None
