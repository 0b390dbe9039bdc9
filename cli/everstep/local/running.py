"""A stack while it runs: its units and ``stack.json``, which always says the same as they do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from everstep.core.errors import RefusedError
from everstep.core.system import Clock
from everstep.local import cleanup, hosts
from everstep.local.blueprints import Blueprint, Catalogue
from everstep.local.relays import Relays
from everstep.local.state import HostConfig, ProcessRecord, Stack, StatePaths, save_stack
from everstep.local.unit import Unit


class RunningStack:
    """Owns the units; the supervisor and its orders work on it."""

    def __init__(
        self, *, paths: StatePaths, stack: Stack, catalogue: Catalogue, clock: Clock
    ) -> None:
        self.paths = paths
        self.stack = stack
        self.catalogue = catalogue
        self.clock = clock
        self.units: dict[str, Unit] = {}
        self.relays = Relays(paths=paths, stack=stack, clock=clock) if stack.chaos else None
        self._leftovers: list[Path] = []

    def began(self, supervisor: ProcessRecord | None) -> None:
        """Note who supervises; nothing runs yet."""
        self._keep(replace(self.stack, supervisor=supervisor, processes=()))

    async def start_all(self, blueprints: Iterable[Blueprint]) -> None:
        """Start new units together and wait until all are ready.

        Raises:
            RefusedError: one does not start; its last words are told, and its log is named.
        """
        units = [self._add(blueprint) for blueprint in blueprints]
        for unit in units:
            unit.start()
        for unit in units:
            await self.await_ready(unit)

    async def await_ready(self, unit: Unit) -> None:
        """Wait for one unit. Raises RefusedError as ``start_all`` does."""
        if not await unit.wait_ready():
            words = await asyncio.to_thread(unit.last_words)
            ended = f"{unit.last_end}: {words}" if words else unit.last_end
            raise RefusedError(
                "does_not_start", f"{unit.name} does not start ({ended}); its log is {unit.log}"
            )

    async def start_host(self, host: HostConfig) -> None:
        """Start a host's agent, for the first time or again. Raises as ``start_all``."""
        host = replace(host, down=False)
        if self.relays is not None:
            host = replace(host, relay=await self.relays.open_for(host.host_id))
        self.put_host(host)
        blueprint = self.catalogue.agent(self.stack, host)  # also makes its directories anew
        unit = self.units.get(host.host_id)
        if unit is None:
            await self.start_all([blueprint])
        else:
            unit.start()
            await self.await_ready(unit)

    async def take_down(self) -> None:
        """End everything in order: services, hosts at once, and what services stand on.

        Nobody who judges hosts may see them go: one would be lost, and held out when all is back.
        """
        await self._stop("service")
        agents = [unit for unit in self.units.values() if unit.kind == "agent"]
        await asyncio.gather(*(unit.kill(keep_down=True) for unit in agents))
        for host in self.stack.hosts:
            await asyncio.to_thread(hosts.lose, self.paths, self.stack, host.host_id)
        await self._stop("server")
        for path in self._leftovers:
            path.unlink(missing_ok=True)
        await self.catalogue.close()
        if self.relays is not None:
            await self.relays.relay.close()
        await asyncio.to_thread(cleanup.sweep, self.paths, self.stack)

    def host(self, name: str) -> HostConfig:
        """Return a host. Raises RefusedError with the names there are."""
        host = self.stack.host(name)
        if host is None:
            names = ", ".join(host.host_id for host in self.stack.hosts)
            raise RefusedError("unknown_host", f"no host {name} here; there are: {names}")
        return host

    def service(self, name: str) -> Unit:
        """Return a service's or server's unit. Raises RefusedError with the names there are."""
        unit = self.units.get(name.replace("-", "_"))
        if unit is None or unit.kind == "agent":
            known = [u.name for u in self.units.values() if u.kind != "agent"]
            names = ", ".join(known).replace("_", "-")  # as the help spells them
            raise RefusedError("unknown_service", f"no service {name} here; there are: {names}")
        return unit

    def put_host(self, host: HostConfig) -> None:
        """Add or replace a host in ``stack.json``."""
        fleet = {one.host_id: one for one in self.stack.hosts} | {host.host_id: host}
        self._keep(replace(self.stack, hosts=tuple(fleet.values())))

    def set_spares(self, spares: int) -> None:
        """Note how many hosts are meant to stand by."""
        self._keep(replace(self.stack, spares=spares))

    def describe(self) -> list[dict[str, Any]]:
        """Return each unit as ``everstep status`` tells it."""
        return [
            {
                "name": unit.name,
                "kind": unit.kind,
                "state": unit.state.value,
                "pid": unit.record.pid if unit.record is not None else None,
                "restarts": max(0, unit.starts - 1),
                "last_end": unit.last_end,
            }
            for unit in self.units.values()
        ]

    def _add(self, blueprint: Blueprint) -> Unit:
        unit = Unit(
            name=blueprint.name,
            kind=blueprint.kind,
            launch=blueprint.launch,
            ready=blueprint.ready,
            log=self.paths.log(blueprint.name),
            clock=self.clock,
            changed=self._note_processes,
        )
        self.units[unit.name] = unit
        self._leftovers += blueprint.leftovers
        return unit

    def _note_processes(self) -> None:
        running = tuple(unit.record for unit in self.units.values() if unit.record is not None)
        try:
            self._keep(replace(self.stack, processes=running))
        except OSError as error:
            # A full disk. The table helps to clean up; what dies must be started all the same.
            sys.stderr.write(f"the process table cannot be written: {error}\n")

    async def _stop(self, kind: str) -> None:
        units = [unit for unit in self.units.values() if unit.kind == kind]
        await asyncio.gather(*(unit.stop() for unit in units))

    def _keep(self, stack: Stack) -> None:
        self.stack = stack
        save_stack(self.paths, stack)
