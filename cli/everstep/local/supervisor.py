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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from everstep.core.errors import EverstepError, RefusedError
from everstep.core.system import Clock, SystemClock
from everstep.local import cleanup, control, hosts, processes
from everstep.local.blueprints import Blueprint, Catalogue
from everstep.local.fleet import grown
from everstep.local.state import HostConfig, Stack, StatePaths, load_stack, save_stack
from everstep.local.unit import Unit


class Supervisor:
    """Owns the units and ``stack.json``."""

    def __init__(
        self, *, paths: StatePaths, stack: Stack, catalogue: Catalogue, clock: Clock
    ) -> None:
        self._paths = paths
        self._stack = stack
        self._catalogue = catalogue
        self._clock = clock
        self._units: dict[str, Unit] = {}
        self._leftovers: list[Path] = []
        self._phase = "starting"
        self._doing = ""
        self._problem = ""
        self._ending = asyncio.Event()
        self._host_turn = asyncio.Lock()  # hosts are added, killed and started one at a time

    async def run(self) -> None:
        """Bring the stack up, serve orders until told to stop, take everything down."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        me = processes.record_of("supervisor", os.getpid())
        self._keep(replace(self._stack, supervisor=me, processes=()))
        server = await control.serve(self._paths.socket, self._answer)
        boot = asyncio.create_task(self._boot(), name="boot")
        await self._ending.wait()
        self._phase = "stopping"
        boot.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await boot
        await self._take_down()
        server.close()
        self._paths.socket.unlink(missing_ok=True)
        self._keep(replace(self._stack, supervisor=None, processes=()))

    # ---- up and down

    async def _boot(self) -> None:
        try:
            await self._bring_up()
        except (EverstepError, OSError) as error:
            self._phase, self._problem = "failed", str(error)

    async def _bring_up(self) -> None:
        self._doing = "servers"
        await asyncio.to_thread(self._catalogue.prepare, self._stack)
        await self._start_all(self._catalogue.servers(self._stack))
        self._doing = "databases and bucket"
        await self._catalogue.provision(self._stack)
        self._doing = "services"
        await self._start_all(self._catalogue.services(self._stack))
        self._doing = "hosts"
        up = [host for host in self._stack.hosts if not host.down]
        await self._start_all(self._catalogue.agent(self._stack, host) for host in up)
        self._doing, self._phase = "", "running"

    async def _start_all(self, blueprints: Iterable[Blueprint]) -> None:
        units = [self._unit(blueprint) for blueprint in blueprints]
        for unit in units:
            unit.start()
        for unit in units:
            if not await unit.wait_ready():
                raise RefusedError(
                    "does_not_start",
                    f"{unit.name} does not start ({unit.last_end}); its log is {unit.log}",
                )

    def _unit(self, blueprint: Blueprint) -> Unit:
        unit = Unit(
            name=blueprint.name,
            kind=blueprint.kind,
            launch=blueprint.launch,
            ready=blueprint.ready,
            log=self._paths.log(blueprint.name),
            clock=self._clock,
            changed=self._note_processes,
        )
        self._units[unit.name] = unit
        self._leftovers += blueprint.leftovers
        return unit

    async def _take_down(self) -> None:
        agents = [unit for unit in self._units.values() if unit.kind == "agent"]
        await asyncio.gather(*(unit.kill(keep_down=True) for unit in agents))
        for host in self._stack.hosts:
            await asyncio.to_thread(hosts.lose, self._paths, self._stack, host.host_id)
        for kind in ("service", "server"):
            units = [unit for unit in self._units.values() if unit.kind == kind]
            await asyncio.gather(*(unit.stop() for unit in units))
        for path in self._leftovers:
            path.unlink(missing_ok=True)
        await self._catalogue.close()
        await asyncio.to_thread(cleanup.sweep, self._paths, self._stack)

    # ---- orders

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"command": "status"}:
                return self._status()
            case {"command": "stop"}:
                self._ending.set()
                return {}
            case {"command": "grow", "hosts": int(wanted), "spares": int(spares)}:
                return await self._grow(wanted, spares)
            case {"command": "kill", "what": "host", "name": str(name)}:
                return await self._kill_host(name)
            case {"command": "kill", "what": "agent", "name": str(name)}:
                return await self._kill_agent(name)
            case {"command": "kill", "what": "rank", "rank": int(rank), "job": str(job)}:
                return await self._kill_rank(rank, job)
            case {"command": "kill", "what": "service", "name": str(name), "down": bool(down)}:
                return await self._kill_service(name, down=down)
            case {"command": "start", "what": "host", "name": str(name)}:
                return await self._start_host(name)
            case {"command": "start", "what": "service", "name": str(name)}:
                return await self._start_service(name)
            case _:
                raise RefusedError("unknown_order", f"the supervisor does not understand {request}")

    async def _grow(self, wanted: int, spares: int) -> dict[str, Any]:
        async with self._host_turn:
            added = grown(self._stack.hosts, count=wanted + spares)
            if added:
                every = (*self._stack.hosts, *added)
                self._keep(replace(self._stack, hosts=every, spares=spares))
                await self._start_all(self._catalogue.agent(self._stack, host) for host in added)
        return {"added": [host.host_id for host in added]}

    async def _kill_host(self, name: str) -> dict[str, Any]:
        async with self._host_turn:
            host = self._known_host(name)
            self._keep(self._stack_with(replace(host, down=True)))
            at_ms = self._clock.now_ms()
            unit = self._units.get(name)
            gone = asyncio.create_task(unit.kill(keep_down=True)) if unit is not None else None
            left = await asyncio.to_thread(hosts.lose, self._paths, self._stack, name)
            if gone is not None:
                await gone
        if left:
            raise RefusedError("still_alive", f"host {name}: pids {[p.pid for p in left]} live on")
        return {"host": name, "at_ms": at_ms}

    async def _kill_agent(self, name: str) -> dict[str, Any]:
        self._known_host(name)
        unit = self._units.get(name)
        if unit is None or unit.record is None:
            raise RefusedError("not_running", f"the agent of host {name} does not run")
        at_ms, pid = self._clock.now_ms(), unit.record.pid
        await unit.kill(keep_down=False)
        return {"host": name, "pid": pid, "at_ms": at_ms}

    async def _kill_rank(self, rank: int, job: str) -> dict[str, Any]:
        for host in self._stack.hosts:
            for found in await asyncio.to_thread(hosts.ranks, self._paths, host.host_id):
                if found.rank == rank and (not job or found.job_id == job):
                    at_ms = self._clock.now_ms()
                    processes.send_signal([found.record], signal.SIGKILL)
                    return {
                        "host": host.host_id,
                        "job": found.job_id,
                        "rank": rank,
                        "pid": found.record.pid,
                        "at_ms": at_ms,
                    }
        raise RefusedError(
            "not_running", f"rank {rank} of {f'job {job}' if job else 'any job'} does not run here"
        )

    async def _kill_service(self, name: str, *, down: bool) -> dict[str, Any]:
        unit = self._known_service(name)
        at_ms = self._clock.now_ms()
        if unit.record is None:
            raise RefusedError("not_running", f"{name} does not run")
        await unit.kill(keep_down=down)
        return {"service": unit.name, "at_ms": at_ms, "down": down}

    async def _start_host(self, name: str) -> dict[str, Any]:
        async with self._host_turn:
            host = self._stack.host(name)
            if host is None:
                self._paths.check_socket(self._paths.run_dir(name) / "agent.sock")
                (host,) = grown(self._stack.hosts, count=len(self._stack.hosts) + 1, name=name)
            self._keep(self._stack_with(replace(host, down=False)))
            unit = self._units.get(name)
            if unit is not None:
                unit.start()
                await unit.wait_ready()
            else:
                await self._start_all([self._catalogue.agent(self._stack, host)])
        return {"host": name}

    async def _start_service(self, name: str) -> dict[str, Any]:
        unit = self._known_service(name)
        unit.start()
        if not await unit.wait_ready():
            raise RefusedError("does_not_start", f"{name} does not start; its log is {unit.log}")
        return {"service": unit.name}

    def _known_host(self, name: str) -> HostConfig:
        host = self._stack.host(name)
        if host is None:
            names = ", ".join(host.host_id for host in self._stack.hosts)
            raise RefusedError("unknown_host", f"no host {name} here; there are: {names}")
        return host

    def _known_service(self, name: str) -> Unit:
        unit = self._units.get(name.replace("-", "_"))
        if unit is None or unit.kind == "agent":
            names = ", ".join(u.name for u in self._units.values() if u.kind != "agent")
            raise RefusedError("unknown_service", f"no service {name} here; there are: {names}")
        return unit

    # ---- what is

    def _status(self) -> dict[str, Any]:
        return {
            "phase": self._phase,
            "doing": self._doing,
            "problem": self._problem,
            "units": [_describe(unit) for unit in self._units.values()],
        }

    def _stack_with(self, host: HostConfig) -> Stack:
        others = [one for one in self._stack.hosts if one.host_id != host.host_id]
        position = next(
            (i for i, one in enumerate(self._stack.hosts) if one.host_id == host.host_id),
            len(others),
        )
        return replace(self._stack, hosts=(*others[:position], host, *others[position:]))

    def _note_processes(self) -> None:
        running = tuple(unit.record for unit in self._units.values() if unit.record is not None)
        self._keep(replace(self._stack, processes=running))

    def _keep(self, stack: Stack) -> None:
        self._stack = stack
        save_stack(self._paths, stack)


def _describe(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name,
        "kind": unit.kind,
        "state": unit.state.value,
        "pid": unit.record.pid if unit.record is not None else None,
        "restarts": max(0, unit.starts - 1),
        "last_end": unit.last_end,
    }


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
