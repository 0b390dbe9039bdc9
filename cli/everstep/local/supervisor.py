"""The one daemon of a one-machine stack: starts everything, restarts what dies, ends it all.

``python -m everstep.local.supervisor --state DIR`` reads what to run from ``stack.json``, which the
command line has prepared, and takes orders on ``supervisor.sock``. It holds no truth of its own:
when it is killed, the next ``up`` or ``down`` finds every process by the table it kept on disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everstep.core.errors import EverstepError
from everstep.core.system import Clock, SystemClock
from everstep.local import control, processes
from everstep.local.blueprints import Catalogue
from everstep.local.orders import Orders
from everstep.local.running import RunningStack
from everstep.local.state import Stack, StatePaths, load_stack


class Supervisor:
    """One life of a stack, from start to end."""

    def __init__(
        self, *, paths: StatePaths, stack: Stack, catalogue: Catalogue, clock: Clock
    ) -> None:
        self._running = RunningStack(paths=paths, stack=stack, catalogue=catalogue, clock=clock)
        self._orders = Orders(self._running)
        self._socket = paths.socket
        self._phase = "starting"
        self._doing = ""
        self._problem = ""
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Bring the stack up, serve orders until told to stop, take everything down."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        self._running.began(processes.record_of("supervisor", os.getpid()))
        server = await control.serve(self._socket, self._answer)
        boot = asyncio.create_task(self._boot(), name="boot")
        await self._ending.wait()
        self._phase = "stopping"
        boot.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await boot
        await self._running.take_down()
        server.close()
        self._socket.unlink(missing_ok=True)
        self._running.began(None)

    async def _boot(self) -> None:
        try:
            await self._bring_up()
        except (EverstepError, OSError) as error:
            self._phase, self._problem = "failed", str(error)

    async def _bring_up(self) -> None:
        running, catalogue = self._running, self._running.catalogue
        self._doing = "servers"
        await asyncio.to_thread(catalogue.prepare, running.stack)
        await running.start_all(catalogue.servers(running.stack))
        self._doing = "databases"
        await catalogue.provision(running.stack)
        self._doing = "services and hosts"
        await asyncio.gather(
            running.start_all(catalogue.services(running.stack)),
            # At the same time: a monitor that finds a job in its books begins to miss its hosts.
            *(running.start_host(host) for host in running.stack.hosts),
        )
        self._doing, self._phase = "", "running"

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.get("command"):
            case "status":
                return {
                    "phase": self._phase,
                    "doing": self._doing,
                    "problem": self._problem,
                    "units": self._running.describe(),
                }
            case "stop":
                self._ending.set()
                return {}
            case _:
                return await self._orders.carry_out(request)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until it is told to stop."""
    parser = argparse.ArgumentParser(prog="everstep.local.supervisor", description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    paths = StatePaths(root=parser.parse_args(arguments).state.resolve())
    stack = load_stack(paths)
    if stack is None:
        sys.stderr.write(f"no {paths.stack_file}: start the stack with `everstep up`\n")
        return 2
    from everstep.local.catalogue import LocalCatalogue

    catalogue = LocalCatalogue(paths=paths)
    clock = SystemClock()
    asyncio.run(Supervisor(paths=paths, stack=stack, catalogue=catalogue, clock=clock).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
