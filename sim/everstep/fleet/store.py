"""An event store that forgets: the newest events of each stream, so that memory stays flat.

``MemoryStore`` keeps everything, and a placement of 2,048 hosts in each of a thousand generations
is gigabytes. The services' handlers fold each event once and ask only for newer ones, so what is
old is never asked for; if it is, the store says so instead of answering wrongly.

Events are stored as they are: no decision depends on how they are written down, and writing a
placement as JSON takes longer than deciding it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from everstep.core.ports import Consumed, NewEvent, StoredEvent
from everstep.core.system import Clock
from everstep.eventstore.codec import EventCodec
from everstep.eventstore.memory import conflict, retried

E = TypeVar("E")

# Chosen: a handler asks for what is newer than its fold, which here is nothing, as each stream has
# one writer. A few are kept for whoever looks on.
KEPT_A_STREAM: Final = 4
# A lost connection makes a handler send its append once more, at once.
KEPT_FOR_RETRIES: Final = 64


class AsIs(EventCodec[E]):
    """Stores events as the objects they are; the names are those of the real codec."""

    def encode(self, event: E) -> tuple[str, dict[str, Any]]:
        """Return the type name, and the event itself."""
        return self._names[type(event)], {"event": event}

    def decode(self, type_name: str, data: Mapping[str, Any]) -> E:
        """Return the event."""
        del type_name
        event: E = data["event"]
        return event


@dataclass(slots=True)
class _Stream:
    version: int = 0
    newest: deque[StoredEvent] = field(default_factory=lambda: deque(maxlen=KEPT_A_STREAM))


class NewestStore:
    """Implements ``core.ports.EventStore`` for one process that never restarts."""

    def __init__(self, clock: Clock, on_append: Callable[[StoredEvent], None]) -> None:
        """``on_append`` hears every stored event, in order; it must only look and note."""
        self._clock = clock
        self._on_append = on_append
        self._streams: dict[str, _Stream] = {}
        self._recent: OrderedDict[str, StoredEvent] = OrderedDict()
        self._consumed: dict[tuple[str, str], int] = {}
        self._cursors: dict[str, int] = {}
        self._position = 0

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return the stream's events with a version above ``after_version``, in order."""
        known = self._streams.get(stream)
        if known is None or after_version >= known.version:
            return []
        newer = [event for event in known.newest if event.version > after_version]
        assert len(newer) == known.version - after_version, (
            f"stream {stream} is asked for its events after {after_version} and has forgotten "
            f"those before {known.newest[0].version}"
        )
        return newer

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append as ``core.ports.EventStore.append`` says."""
        known = [self._recent[event.event_id] for event in events if event.event_id in self._recent]
        if known:
            return retried(stream, events, known)
        if consumed is not None:
            key = (consumed.consumer, consumed.source)
            if consumed.position <= self._consumed.get(key, 0):
                return []
        there = self._streams.setdefault(stream, _Stream())
        if there.version != expected_version:
            raise conflict(stream, expected_version, there.version)
        stored = [self._store(stream, there, event) for event in events]
        if consumed is not None:
            self._consumed[consumed.consumer, consumed.source] = consumed.position
        for event in stored:
            self._on_append(event)
        return stored

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return what is left of the committed events, in position order."""
        kept = sorted(
            (event for stream in self._streams.values() for event in stream.newest),
            key=lambda event: event.position,
        )
        return [event for event in kept if event.position > after_position][:limit]

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

    def _store(self, stream: str, there: _Stream, event: NewEvent) -> StoredEvent:
        self._position += 1
        there.version += 1
        stored = StoredEvent(
            position=self._position,
            stream=stream,
            version=there.version,
            event_id=event.event_id,
            type=event.type,
            data=event.data,
            metadata=event.metadata,
            recorded_at_ms=self._clock.now_ms(),
        )
        there.newest.append(stored)
        self._recent[event.event_id] = stored
        while len(self._recent) > KEPT_FOR_RETRIES:
            self._recent.popitem(last=False)
        return stored
