"""A process of the simulated world: what it started dies with it, at once.

Every task belongs to the process in whose context it was created; killing the process cancels them
all, and its handles to the store and the bus raise from then on, so that no ``finally`` of the
killed code does what a killed process could not have done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any

from everstep.core.errors import Unavailable
from everstep.core.ports import Consumed, EventStore, NewEvent, StoredEvent

_CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """Owns tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def run(self, work: Coroutine[Any, Any, Any], *, name: str = "") -> asyncio.Task[Any]:
        """Start a task that belongs to this process, as do those that it starts."""
        context: Context = copy_context()
        context.run(_CURRENT.set, self)
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name or self.name, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task as this process's."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def kill(self) -> None:
        """End everything, in the order in which it was started."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()


def unowned(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task that no process owns, whoever asks for it."""
    context: Context = copy_context()
    context.run(_CURRENT.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)


def install(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop give every new task to the process that creates it."""

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        context = options.get("context")
        process = context.get(_CURRENT) if context is not None else _CURRENT.get()
        if process is not None:
            process.adopt(task)
        return task

    loop.set_task_factory(make)


class Database:
    """A service's database as the world sees it: slow, and sometimes away."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.up = True
        self.since_s = 0.0
        self.latency_s = 0.001
        self.on_append: list[Callable[[Sequence[StoredEvent]], None]] = []


class Handle:
    """Implements ``core.ports.EventStore`` for one process."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return a stream's newer events."""
        await self._reach()
        return await self._database.store.load(stream, after_version=after_version)

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append; the commit may happen although the answer does not come."""
        await self._reach()
        stored = await self._database.store.append(
            stream, expected_version, events, consumed=consumed
        )
        for tell in self._database.on_append:
            tell(stored)
        await self._reach()
        return stored

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return committed events in position order."""
        await self._reach()
        return await self._database.store.read_all(after_position=after_position, limit=limit)

    async def streams(self, *, prefix: str = "") -> list[str]:
        """Return the names of existing streams, sorted."""
        await self._reach()
        return await self._database.store.streams(prefix=prefix)

    async def consumed_position(self, consumer: str, source: str) -> int:
        """Return the last handled position."""
        await self._reach()
        return await self._database.store.consumed_position(consumer, source)

    async def cursor(self, name: str) -> int:
        """Return a named reader's position."""
        await self._reach()
        return await self._database.store.cursor(name)

    async def advance_cursor(self, name: str, position: int) -> None:
        """Move a named cursor forward."""
        await self._reach()
        await self._database.store.advance_cursor(name, position)

    async def _reach(self) -> None:
        """Take the way to the database, or fail as a process does that cannot."""
        self._still_there()
        await asyncio.sleep(self._database.latency_s / 2)
        self._still_there()
        if not self._database.up:
            raise Unavailable("the database is away")

    def _still_there(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError
