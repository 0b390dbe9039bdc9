"""A supervisor whose stack is made of tiny programs: ``python fake_stack.py --state DIR``.

The programs behave as the real ones do where the supervisor looks: pid files, a detached fork
server with ranks that map their snapshot memory, servers with children.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from everstep.core.system import SystemClock
from everstep.local import processes
from everstep.local.blueprints import Blueprint
from everstep.local.hosts import memory_dir
from everstep.local.processes import HOST_VARIABLE, STACK_VARIABLE
from everstep.local.state import (
    SERVERS,
    SERVICES,
    HostConfig,
    ProcessRecord,
    Stack,
    StatePaths,
    load_stack,
)
from everstep.local.supervisor import Supervisor
from everstep.local.unit import Launch

JOB = "job-1"


class FakeCatalogue:
    """Implements ``blueprints.Catalogue``."""

    def __init__(self, paths: StatePaths) -> None:
        self.paths = paths

    def prepare(self, stack: Stack) -> None:
        """Nothing to write."""

    def servers(self, stack: Stack) -> list[Blueprint]:
        """Each has a child that must die with it."""
        return [
            self.program(stack, name, "server", "parent", with_children=True) for name in SERVERS
        ]

    async def provision(self, stack: Stack) -> None:
        """Nothing to create."""

    def services(self, stack: Stack) -> list[Blueprint]:
        """One of them breaks when the test has asked for it."""
        return [
            self.program(stack, name, "service", "break" if self.broken(name) else "sleep")
            for name in SERVICES
        ]

    def agent(self, stack: Stack, host: HostConfig) -> Blueprint:
        """An agent that starts a fork server with two ranks."""
        run_dir, memory = self.paths.run_dir(host.host_id), memory_dir(stack, host.host_id)
        run_dir.mkdir(parents=True, exist_ok=True)
        memory.mkdir(parents=True, exist_ok=True)
        first = 2 * (int(host.host_id.removeprefix("h")) - 1)
        return self.program(
            stack, host.host_id, "agent", "agent", str(run_dir), str(memory), str(first),
            host_id=host.host_id,
        )  # fmt: skip

    async def close(self) -> None:
        """Nothing is open."""

    def broken(self, name: str) -> bool:
        """Whether the test wants this one not to start."""
        return (self.paths.root / f"break-{name}").exists()

    def program(self, stack, name, kind, *arguments, with_children=False, host_id=""):
        """Run this file in another role."""
        marker = self.paths.logs / f"{name}.ready"
        marker.unlink(missing_ok=True)

        async def ready(record: ProcessRecord) -> bool:
            found = await asyncio.to_thread(processes.read_pid_file, name, marker)
            return found is not None and found.pid == record.pid

        return Blueprint(
            name=name,
            kind=kind,
            launch=Launch(
                argv=(sys.executable, __file__, "--role", str(marker), *arguments),
                env={**os.environ, STACK_VARIABLE: stack.stack_id, HOST_VARIABLE: host_id},
                cwd=self.paths.root,
                with_children=with_children,
            ),
            ready=ready,
        )


def play(marker: Path, role: str, *arguments: str) -> None:
    """Be one of the programs."""
    match role:
        case "break":
            sys.exit("it cannot work like this")
        case "parent":
            subprocess.Popen([sys.executable, __file__, "--role", str(marker), "sleep"])
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


def main() -> None:
    """Run the supervisor, or play a role."""
    if sys.argv[1] == "--role":
        play(Path(sys.argv[2]), *sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, required=True)
    paths = StatePaths(root=parser.parse_args().state)
    stack = load_stack(paths)
    assert stack is not None
    supervisor = Supervisor(
        paths=paths, stack=stack, catalogue=FakeCatalogue(paths), clock=SystemClock()
    )
    asyncio.run(supervisor.run())


if __name__ == "__main__":
    main()
