"""What the supervisor can be told: grow, kill, start. Refusals are sentences for a person."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from everstep.core.errors import RefusedError
from everstep.local import hosts, processes
from everstep.local.chaos_orders import ChaosOrders
from everstep.local.fleet import grown
from everstep.local.running import RunningStack


class Orders:
    """Carries out orders on a running stack."""

    def __init__(self, running: RunningStack) -> None:
        self._running = running
        self._host_turn = asyncio.Lock()  # hosts are added, killed and started one at a time
        self._chaos = ChaosOrders(running)

    async def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked and say what was done.

        Raises:
            RefusedError: there is no such thing, it does not run, or it does not start.
        """
        match request:
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
            case {"command": "chaos"}:
                return await self._chaos.carry_out(request)
            case {"command": "start", "what": "host", "name": str(name)}:
                return await self._start_host(name)
            case {"command": "start", "what": "hosts", "names": list(names)}:
                return await self._start_hosts(names)
            case {"command": "start", "what": "service", "name": str(name)}:
                return await self._start_service(name)
            case _:
                raise RefusedError("unknown_order", f"the supervisor does not understand {request}")

    async def _grow(self, wanted: int, spares: int) -> dict[str, Any]:
        async with self._host_turn:
            running = self._running
            added = grown(running.stack.hosts, count=wanted + spares)
            if added:
                running.set_spares(spares)
                await asyncio.gather(*(running.start_host(host) for host in added))
        return {"added": [host.host_id for host in added]}

    async def _kill_host(self, name: str) -> dict[str, Any]:
        async with self._host_turn:
            running = self._running
            host = running.host(name)
            running.put_host(host.as_down())
            at_ms = running.clock.now_ms()
            unit = running.units.get(name)
            gone = asyncio.create_task(unit.kill(keep_down=True)) if unit is not None else None
            left = await asyncio.to_thread(hosts.lose, running.paths, running.stack, name)
            if gone is not None:
                await gone
        if left:
            raise RefusedError("still_alive", f"host {name}: pids {[p.pid for p in left]} live on")
        return {"host": name, "at_ms": at_ms}

    async def _kill_agent(self, name: str) -> dict[str, Any]:
        self._running.host(name)
        unit = self._running.units.get(name)
        if unit is None or unit.record is None:
            raise RefusedError("not_running", f"the agent of host {name} does not run")
        at_ms, pid = self._running.clock.now_ms(), unit.record.pid
        await unit.kill(keep_down=False)
        return {"host": name, "pid": pid, "at_ms": at_ms}

    async def _kill_rank(self, rank: int, job: str) -> dict[str, Any]:
        running = self._running
        for host in running.stack.hosts:
            for found in await asyncio.to_thread(hosts.ranks, running.paths, host.host_id):
                if found.rank == rank and (not job or found.job_id == job):
                    at_ms = running.clock.now_ms()
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
        unit = self._running.service(name)
        at_ms = self._running.clock.now_ms()
        if unit.record is None and not down:
            raise RefusedError("not_running", f"{name} does not run")
        await unit.kill(keep_down=down)
        return {"service": unit.name, "at_ms": at_ms, "down": down}

    async def _start_host(self, name: str) -> dict[str, Any]:
        async with self._host_turn:
            running = self._running
            host = running.stack.host(name)
            if host is None:
                if name in running.units or name == "supervisor":
                    raise RefusedError("taken", f"{name} is a part of the stack: no host's name")
                fleet = running.stack.hosts
                (host,) = grown(fleet, count=len(fleet) + 1, name=name)
            await running.start_host(host)
        return {"host": name}

    async def _start_hosts(self, names: list[str]) -> dict[str, Any]:
        """Bring hosts back at once: each imports for seconds on one core."""
        async with self._host_turn:
            running = self._running
            back = [running.host(name) for name in names]
            await asyncio.gather(*(running.start_host(host) for host in back))
        return {"hosts": names}

    async def _start_service(self, name: str) -> dict[str, Any]:
        unit = self._running.service(name)
        unit.start()
        await self._running.await_ready(unit)
        return {"service": unit.name}
