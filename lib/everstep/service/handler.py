"""Load, fold, decide, append: the one loop between a decider and its stream.

Folds are cached, so a command usually costs one small read (events that another instance appended)
and one append. A cached fold may be stale at any time: the expected version of the append finds
out, and the handler reloads and decides again. Rejected: locking streams in the database while
deciding, because a killed holder would have to time out. Within one process commands of one stream
do take turns: they would only make each other reload.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from everstep.bus.tracing import current_traceparent
from everstep.core.decision import Accepted, Rejected
from everstep.core.errors import Conflict, Unavailable
from everstep.core.ports import Consumed, EventStore, NewEvent, StoredEvent
from everstep.core.system import IdSource
from everstep.eventstore.codec import EventCodec

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")

_log = logging.getLogger(__name__)

# Only another instance of the service can be faster, and one that works through a burst is faster
# every time. Pauses of 0, 1, 3, ... 511 ms let a second of its commits pass before we give up.
ATTEMPTS_MAX: Final = 10
PAUSE_S: Final = 0.001
# Chosen: more live jobs than one control plane runs; a fold is some KiB.
CACHED_STREAMS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Generic[C, S, E]):
    """A decider with its names: what a command addresses, and how its events are stored."""

    name: str
    stream_of: Callable[[C], str]
    initial: Callable[[], S]
    decide: Callable[[C, S], Accepted[E] | Rejected]
    evolve: Callable[[S, E], S]
    codec: EventCodec[E]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled(Generic[S, E]):
    """What became of a command: the state and version after ``events``."""

    state: S
    version: int
    events: tuple[E, ...]
    rejected: Rejected | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold(Generic[S]):
    state: S
    version: int


class Handler(Generic[C, S, E]):
    """Runs the commands of one aggregate."""

    def __init__(
        self,
        aggregate: Aggregate[C, S, E],
        store: EventStore,
        ids: IdSource,
        *,
        on_commit: Sequence[Callable[[], None]] = (),
    ) -> None:
        """``on_commit`` are called after each append of events; they must only set a flag."""
        self.aggregate = aggregate
        self._store = store
        self._ids = ids
        self._on_commit = tuple(on_commit)
        self._folds: OrderedDict[str, _Fold[S]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def handle(self, command: C, *, consumed: Consumed | None = None) -> Handled[S, E]:
        """Decide on the newest state and append what follows.

        Args:
            command: addresses ``aggregate.stream_of(command)``.
            consumed: the foreign event that caused the command; recorded with the effect, also
                when nothing follows. If it was handled before, nothing happens. One foreign
                event must lead to one ``handle`` per consumer name.

        Raises:
            Conflict: other writers were faster ``ATTEMPTS_MAX`` times.
            Unavailable: the store does not answer.
        """
        stream = self.aggregate.stream_of(command)
        turn = self._turns.setdefault(stream, asyncio.Lock())
        async with turn:
            for attempt in range(ATTEMPTS_MAX):
                try:
                    return await self._decide(stream, command, consumed)
                except Conflict as error:
                    _log.debug("%s: %s", type(command).__name__, error)
                    await asyncio.sleep(PAUSE_S * (2**attempt - 1))
        raise Conflict(
            f"stream {stream}: other writers were faster {ATTEMPTS_MAX} times; send again"
        )

    async def state(self, stream: str) -> S:
        """Return the fold of the stream's events, brought up to date."""
        return (await self._fold(stream)).state

    async def _decide(self, stream: str, command: C, consumed: Consumed | None) -> Handled[S, E]:
        fold = await self._fold(stream)
        decision = self.aggregate.decide(command, fold.state)
        rejected = decision if isinstance(decision, Rejected) else None
        events = decision.events if isinstance(decision, Accepted) else ()
        if events or consumed is not None:
            stored = await self._append(stream, fold.version, events, consumed)
            if not stored:
                events = ()  # handled before, or nothing followed
            else:
                fold = self._remember(stream, fold, events)
                for wake in self._on_commit:
                    wake()
        return Handled(state=fold.state, version=fold.version, events=events, rejected=rejected)

    async def _append(
        self, stream: str, version: int, events: Sequence[E], consumed: Consumed | None
    ) -> list[StoredEvent]:
        """Append; once more if the connection was lost, for the commit may have happened."""
        new = [self._new(event) for event in events]
        try:
            return await self._store.append(stream, version, new, consumed=consumed)
        except Unavailable:
            return await self._store.append(stream, version, new, consumed=consumed)

    async def _fold(self, stream: str) -> _Fold[S]:
        fold = self._folds.get(stream)
        if fold is None:
            fold = _Fold(state=self.aggregate.initial(), version=0)
        newer = await self._store.load(stream, after_version=fold.version)
        decoded = [self.aggregate.codec.decode(event.type, event.data) for event in newer]
        return self._remember(stream, fold, decoded)

    def _remember(self, stream: str, fold: _Fold[S], events: Sequence[E]) -> _Fold[S]:
        state = fold.state
        for event in events:
            state = self.aggregate.evolve(state, event)
        fold = _Fold(state=state, version=fold.version + len(events))
        if fold.version:
            self._folds[stream] = fold
            self._folds.move_to_end(stream)
        while len(self._folds) > CACHED_STREAMS_MAX:
            self._folds.popitem(last=False)
        return fold

    def _new(self, event: E) -> NewEvent:
        name, data = self.aggregate.codec.encode(event)
        traceparent = current_traceparent()
        return NewEvent(
            event_id=self._ids.new_id("e"),
            type=name,
            data=data,
            metadata={"traceparent": traceparent} if traceparent else {},
        )
