"""Questions that are on their way while the watch goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from everstep.core.errors import EverstepError

log = logging.getLogger(__name__)


class Errands:
    """Holds tasks until they are done; one that fails is left to the next tick."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Awaitable[None]) -> None:
        """Begin, and do not wait."""

        async def guarded() -> None:
            try:
                await work
            except EverstepError as error:
                log.warning(
                    "could not finish a probe's verdict, the next tick tries again: %s", error
                )

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
