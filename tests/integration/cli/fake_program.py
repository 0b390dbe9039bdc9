"""One process of a fake stack: ``python fake_program.py READY_FILE ROLE [ARGUMENT...]``.

Behaves as the real ones do where the supervisor looks: pid files, a detached fork server with ranks
that map their snapshot memory, servers with children. Without imports of ours: it starts at once.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

JOB = "job-1"


def play(marker: Path, role: str, *arguments: str) -> None:
    """Be one of the programs."""
    match role:
        case "break":
            sys.exit("it cannot work like this")
        case "parent":
            subprocess.Popen([sys.executable, "-S", "-E", __file__, f"{marker}.child", "sleep"])
        case "agent":
            be_agent(*(Path(a) for a in arguments[:2]), first_rank=int(arguments[2]))
    marker.write_text(str(os.getpid()))
    while True:
        signal.pause()


def be_agent(run_dir: Path, memory: Path, *, first_rank: int) -> None:
    """Write the pid file and start a detached fork server unless one lives."""
    (run_dir / "agent.pid").write_text(f"{os.getpid()}\n")
    if (run_dir / "fork_server.pid").exists():
        return
    if os.fork() == 0:
        os.setsid()
        be_fork_server(run_dir, memory, first_rank=first_rank)
    while not (run_dir / "ranks").exists():
        time.sleep(0.01)


def be_fork_server(run_dir: Path, memory: Path, *, first_rank: int) -> None:
    """Fork two ranks that map their memory, and stay."""
    (run_dir / "fork_server.pid").write_text(f"{os.getpid()}\n")
    for rank in (first_rank, first_rank + 1):
        slot = memory / JOB / f"rank-{rank}" / "slot-0"
        slot.parent.mkdir(parents=True)
        slot.write_bytes(bytes(4096))
        if os.fork() == 0:
            with slot.open("r+b") as file:
                held = mmap.mmap(file.fileno(), 0)
            (run_dir / f"rank-{rank}").touch()
            while True:
                signal.pause()
                held.flush()
    while len(list(run_dir.glob("rank-*"))) < 2:
        time.sleep(0.01)
    (run_dir / "ranks").touch()
    while True:
        signal.pause()


if __name__ == "__main__":
    play(Path(sys.argv[1]), *sys.argv[2:])
