"""Group commit: what arrives while one commit is under way goes into the next one together.

Thousands of agents join or report within the same second, each with a decision of microseconds and
a commit of milliseconds. Nobody waits for a batch to fill: an item that comes alone goes alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Grouped(Generic[T, R]):
    """Puts items to ``work`` in batches, one batch at a time, in order of arrival."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[R]], *, batch_max: int) -> None:
        """``work`` gets up to ``batch_max`` items; what it returns or raises goes to each."""
        self._work = work
        self._batch_max = batch_max
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._runner: asyncio.Task[None] | None = None

    async def put(self, item: T) -> R:
        """Return what became of the batch that the item was in; raises what ``work`` raised."""
        outcome: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, outcome))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="group commit")
        return await outcome

    async def _run(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), self._batch_max)
                batch = [self._waiting.popleft() for _ in range(count)]
                await self._commit(batch)
        finally:
            self._runner = None

    async def _commit(self, batch: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        work = self._work([item for item, _ in batch])
        (result,) = await asyncio.gather(work, return_exceptions=True)
        for _, outcome in batch:
            if outcome.done():  # whoever asked has gone away
                continue
            if isinstance(result, BaseException):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)
