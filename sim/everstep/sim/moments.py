"""Moments of a run at which a fault may strike: when something has just been decided.

Most bugs of a recovery are between two of its steps, which a fault at a random second seldom meets.
Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from everstep.checkpoint_registry.wiring import NAME as REGISTRY
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.core.ports import StoredEvent
from everstep.host_inventory.wiring import NAME as INVENTORY
from everstep.monitor.wiring import NAME as MONITOR

if TYPE_CHECKING:
    from everstep.sim.faults import Fault
    from everstep.sim.services import Backing

WAIT_S_MAX: Final = 60.0  # chosen: a moment that has not come by then does not come in a short run


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When ``service`` stores an event of this type, with these fields."""

    service: str
    event: str
    having: Mapping[str, Any]

    def is_now(self, stored: StoredEvent) -> bool:
        """Whether this event is it."""
        return stored.type.startswith(f"{self.event}.") and all(
            stored.data.get(name) == value for name, value in self.having.items()
        )


def _moment(service: str, event: str, **having: Any) -> Moment:
    return Moment(service=service, event=event, having=having)


MOMENTS: Final[Mapping[str, Moment]] = {
    "recovery": _moment(CONTROLLER, "generation_begun", cause="recovery"),
    "drain": _moment(CONTROLLER, "generation_begun", cause="drain"),
    "grow": _moment(CONTROLLER, "generation_begun", cause="grow"),
    "restart": _moment(CONTROLLER, "generation_begun", cause="restart"),
    "stop": _moment(CONTROLLER, "generation_begun", cause="stop"),
    "short": _moment(CONTROLLER, "hosts_short"),
    "fenced": _moment(CONTROLLER, "hosts_fenced"),
    "placed": _moment(CONTROLLER, "placement_decided"),
    "planned": _moment(CONTROLLER, "restore_decided"),
    "started": _moment(CONTROLLER, "ranks_started"),
    "running": _moment(CONTROLLER, "job_running"),
    "verdict": _moment(MONITOR, "incident_opened"),
    "corruption": _moment(MONITOR, "incident_opened", kind="silent_corruption"),
    "cordoned": _moment(INVENTORY, "host_cordoned"),
    "returning": _moment(INVENTORY, "host_returning"),
    "suspected": _moment(REGISTRY, "checkpoints_suspected"),
    "stored": _moment(REGISTRY, "checkpoint_completed"),
}


class Moments:
    """Wakes whoever lies in wait."""

    def __init__(self, backing: Backing) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {name: [] for name in MOMENTS}
        for service in sorted({moment.service for moment in MOMENTS.values()}):
            backing.databases[service].on_append.append(self._looker(service))

    async def wait(self, name: str) -> bool:
        """Wait for a moment; say whether it came."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[name].append(future)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await future
        except TimeoutError:
            return False
        return True

    def _looker(self, service: str) -> Callable[[Sequence[StoredEvent]], None]:
        mine = [(name, moment) for name, moment in MOMENTS.items() if moment.service == service]

        def look(stored: Sequence[StoredEvent]) -> None:
            for name, moment in mine:
                if self._waiting[name] and any(moment.is_now(one) for one in stored):
                    self._wake(name)

        return look

    def _wake(self, name: str) -> None:
        woken, self._waiting[name] = self._waiting[name], []
        for future in woken:
            if not future.done():
                future.set_result(None)


def at_moments(random: Random, faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Let some of the faults lie in wait for a moment, in half of the runs."""
    if random.random() < 0.5:
        return tuple(faults)
    names = random.sample(sorted(MOMENTS), 3)
    return tuple(
        replace(fault, moment=random.choice(names), after_s=random.choice((0.0, 0.02, 0.3, 2.0)))
        if random.random() < 0.5
        else fault
        for fault in faults
    )
