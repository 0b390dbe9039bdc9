"""The event store in memory: for the simulator and for tests, under the same contract.

No awaits happen inside an operation, so each one is atomic on one event loop. Projections get the
store itself as their transaction and cannot be rolled back here: one that raises leaves the store
without the events, but its own writes are its own concern.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from everstep.core.errors import Conflict
from everstep.core.ports import Consumed, NewEvent, Projection, StoredEvent
from everstep.core.system import Clock


class MemoryStore:
    """Implements ``core.ports.EventStore`` with dictionaries and lists."""

    def __init__(self, *, clock: Clock, projections: Sequence[Projection] = ()) -> None:
        self._clock = clock
        self._projections = tuple(projections)
        self._log: list[StoredEvent] = []
        self._streams: dict[str, list[StoredEvent]] = {}
        self._by_id: dict[str, StoredEvent] = {}
        self._consumed: dict[tuple[str, str], int] = {}
        self._cursors: dict[str, int] = {}

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return the stream's events with a version above ``after_version``, in order."""
        return self._streams.get(stream, [])[max(after_version, 0) :]

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append as ``core.ports.EventStore.append`` says.

        Returns:
            The stored events; those of the earlier call if this is a retry; nothing if
            ``consumed`` was handled before.
        """
        known = [self._by_id[event.event_id] for event in events if event.event_id in self._by_id]
        if known:
            return retried(stream, events, known)
        if consumed is not None and consumed.position <= await self.consumed_position(
            consumed.consumer, consumed.source
        ):
            return []
        version = len(self._streams.get(stream, []))
        if version != expected_version:
            raise conflict(stream, expected_version, version)
        stored = [
            StoredEvent(
                position=len(self._log) + index + 1,
                stream=stream,
                version=version + index + 1,
                event_id=event.event_id,
                type=event.type,
                data=event.data,
                metadata=event.metadata,
                recorded_at_ms=self._clock.now_ms(),
            )
            for index, event in enumerate(events)
        ]
        for event in stored:
            for projection in self._projections:
                await projection.apply(self, event)
        self._log.extend(stored)
        if stored:
            self._streams.setdefault(stream, []).extend(stored)
        self._by_id.update({event.event_id: event for event in stored})
        if consumed is not None:
            self._consumed[consumed.consumer, consumed.source] = consumed.position
        return stored

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return committed events in position order."""
        start = bisect_right(self._log, after_position, key=lambda event: event.position)
        return self._log[start : start + limit]

    async def streams(self, *, prefix: str = "") -> list[str]:
        """Return the names of existing streams, sorted."""
        return sorted(name for name in self._streams if name.startswith(prefix))

    async def consumed_position(self, consumer: str, source: str) -> int:
        """Return the last handled position of ``source`` events, 0 at first."""
        return self._consumed.get((consumer, source), 0)

    async def cursor(self, name: str) -> int:
        """Return a named reader's position, 0 at first."""
        return self._cursors.get(name, 0)

    async def advance_cursor(self, name: str, position: int) -> None:
        """Move a named cursor forward; never back."""
        self._cursors[name] = max(position, self._cursors.get(name, 0))


def conflict(stream: str, expected: int, got: int) -> Conflict:
    """Say which version was expected and which was found."""
    return Conflict(f"stream {stream} is at version {got}, expected {expected}: reload and decide")


def retried(
    stream: str, events: Sequence[NewEvent], known: Sequence[StoredEvent]
) -> list[StoredEvent]:
    """Return the events of an earlier, successful append of the same ids.

    Raises:
        Conflict: only some of the ids are stored, or elsewhere: not the same append.
    """
    same = [event.event_id for event in known] == [event.event_id for event in events]
    if not same or any(event.stream != stream for event in known):
        raise Conflict(
            f"event ids {[event.event_id for event in known]} are already stored in "
            f"{sorted({event.stream for event in known})}, which is not this append to {stream}"
        )
    return list(known)
