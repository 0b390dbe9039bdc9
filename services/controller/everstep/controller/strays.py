"""Ends ranks that no fence has reached: their hosts were away when the job went on without them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from everstep.controller.outside import Outside
from everstep.controller.state import TERMINAL, Job
from everstep.core.errors import EverstepError

log = logging.getLogger(__name__)


class Strays:
    """The fences under way, one a job and host.

    Not waited for: a host that falls silent takes seconds, and incidents come behind. Whatever goes
    wrong, it is told again while the ranks run.
    """

    def __init__(self, outside: Outside, state: Callable[[str], Awaitable[Job]]) -> None:
        self._outside = outside
        self._state = state
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """What is under way."""
        return tuple(self._running.values())

    def end(self, job_id: str, host_id: str, generation: int) -> None:
        """Begin to end a job's ranks of ``generation`` on a host."""
        key = (job_id, host_id)
        if key not in self._running:
            task = asyncio.create_task(self._end(job_id, host_id, generation))
            self._running[key] = task
            task.add_done_callback(lambda _: self._running.pop(key, None))

    async def _end(self, job_id: str, host_id: str, generation: int) -> None:
        try:
            job = await self._state(job_id)
            over = job.phase in TERMINAL
            if over or generation < job.generation:
                await self._outside.fence(
                    job_id,
                    job.generation + 1 if over else job.generation,
                    (host_id,),
                    graceful=False,
                    forget=over,
                )
        except EverstepError as error:
            log.warning("job %s: ranks on %s could not be ended: %s", job_id, host_id, error)
