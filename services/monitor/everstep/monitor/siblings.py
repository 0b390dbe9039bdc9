"""Follows what other instances of the monitor have stored.

Instances of a service share its events: each is handed to one of them. What it stores of a job
(that it has begun, moved, ended) the others would never learn of, and all of them hear the hosts.
So each reads once a second what is new in the store; alone, it finds there what it wrote itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.ports import EventStore, StoredEvent
from everstep.eventstore import tables
from everstep.monitor.codec import CODEC, WATCH_PREFIX
from everstep.monitor.events import JobMarked, Mark
from everstep.monitor.repair import Repairer
from everstep.monitor.watcher import Watcher

LOOK_S: Final = 1.0  # a host that falls silent is noticed after longer; an empty look is one read
EVENTS_MAX: Final = 500  # read at once


async def newest_position(connection: AsyncConnection) -> int:
    """Return where the store ends now."""
    query = select(func.coalesce(func.max(tables.events.c.position), 0))
    return int((await connection.execute(query)).scalar_one())


class Siblings:
    """Reads the store from a position on."""

    def __init__(
        self, store: EventStore, watcher: Watcher, repairer: Repairer, position: int
    ) -> None:
        """``position`` is from before the watcher took up its jobs."""
        self._store = store
        self._watcher = watcher
        self._repairer = repairer
        self._position = position

    async def follow(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take up what is new."""
        while events := await self._store.read_all(after_position=self._position, limit=EVENTS_MAX):
            of_job: dict[str, list[StoredEvent]] = {}
            for event in events:
                if event.stream.startswith(WATCH_PREFIX):
                    job_id = event.stream.removeprefix(WATCH_PREFIX)
                    of_job.setdefault(job_id, []).append(event)
            for job_id, new in of_job.items():
                await self._refresh(job_id, new)
            self._position = events[-1].position
            if len(events) < EVENTS_MAX:
                return

    async def _refresh(self, job_id: str, events: Sequence[StoredEvent]) -> None:
        before = self._watcher.watched(job_id)
        await self._watcher.refresh(job_id)
        after = self._watcher.watched(job_id)
        if after is not None and after.restore_step is not None:
            # Told again, it changes nothing.
            self._repairer.resumed(job_id, after.generation, after.restore_step)
        if before is not None and after is None:
            self._repairer.ended(job_id, _last_step(events))


def _last_step(events: Sequence[StoredEvent]) -> int:
    """Return the step that a job has ended with; 0: not told."""
    facts = [CODEC.decode(event.type, event.data) for event in events]
    ends = [fact for fact in facts if isinstance(fact, JobMarked) and fact.mark is Mark.ENDED]
    return ends[-1].step if ends else 0
