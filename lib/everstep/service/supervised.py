"""Keeps a service's loops running: logs what ends them, waits a little, starts them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from everstep.bus.guard import Failed, attempt
from everstep.service.health import Health

RESTART_MIN_S: Final = 0.1
RESTART_MAX_S: Final = 10.0  # chosen: a loop that cannot run is seen in readiness, not in the log
RECOVERED_AFTER_S: Final = 5.0  # a loop that has run this long since it failed counts as well again

_log = logging.getLogger(__name__)


class Supervisor:
    """Owns background loops."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` until it returns; when it raises, run it again after a pause."""
        task = asyncio.create_task(self._keep(name, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel all loops and wait for them."""
        while self._tasks:  # again, because a library may have swallowed a cancellation
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks), timeout=1.0)

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        pause_s = RESTART_MIN_S
        while True:
            started_s = loop.time()
            healed = loop.call_later(RECOVERED_AFTER_S, self._health.trouble, name, "")
            result = await attempt(work(), _log, f"loop {name}")
            healed.cancel()
            if not isinstance(result, Failed):
                self._health.trouble(name, "")
                return
            self._health.trouble(name, f"{type(result.error).__name__}: {result.error}")
            if loop.time() - started_s > RECOVERED_AFTER_S:
                pause_s = RESTART_MIN_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_MAX_S)
