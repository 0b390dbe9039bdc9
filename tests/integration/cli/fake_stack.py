"""A supervisor whose stack is made of tiny programs: ``python fake_stack.py --state DIR``.

What the programs do is in ``fake_program.py``, which imports nothing and so starts at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
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

PROGRAM = str(Path(__file__).with_name("fake_program.py"))


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
                argv=(sys.executable, "-S", "-E", PROGRAM, str(marker), *arguments),
                env={**os.environ, STACK_VARIABLE: stack.stack_id, HOST_VARIABLE: host_id},
                cwd=self.paths.root,
                with_children=with_children,
            ),
            ready=ready,
        )


def main() -> None:
    """Run the supervisor."""
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
