"""Load, fold, decide, append: the one loop between a decider and its stream.

Folds are cached, so a command usually costs one small read (events that another instance appended)
and one append. A cached fold may be stale at any time: the expected version of the append finds
out, and the handler reloads and decides again. Rejected: locking streams while deciding, because a
killed holder would have to time out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from everstep.core.decision import Accepted, Rejected
from everstep.core.errors import Conflict
from everstep.core.ports import Consumed, EventStore, NewEvent
from everstep.core.system import IdSource
from everstep.eventstore.codec import EventCodec

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")

# Chosen, not measured: two instances of a service race on one stream; ten lost races in a row need
# ten foreign appends between a load and an append that are milliseconds apart.
ATTEMPTS_MAX: Final = 10
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
        self._aggregate = aggregate
        self._store = store
        self._ids = ids
        self._on_commit = tuple(on_commit)
        self._folds: OrderedDict[str, _Fold[S]] = OrderedDict()

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
        stream = self._aggregate.stream_of(command)
        for _ in range(ATTEMPTS_MAX):
            fold = await self._fold(stream)
            decision = self._aggregate.decide(command, fold.state)
            events = () if isinstance(decision, Rejected) else decision.events
            rejected = decision if isinstance(decision, Rejected) else None
            if events or consumed is not None:
                try:
                    stored = await self._store.append(
                        stream,
                        fold.version,
                        [self._new(event) for event in events],
                        consumed=consumed,
                    )
                except Conflict:
                    continue
                if events and not stored:
                    events = ()
                elif events:
                    fold = self._remember(stream, fold, events)
            for wake in self._on_commit if events else ():
                wake()
            return Handled(
                state=fold.state, version=fold.version, events=tuple(events), rejected=rejected
            )
        raise Conflict(f"stream {stream}: other writers were faster {ATTEMPTS_MAX} times")

    async def state(self, stream: str) -> S:
        """Return the fold of the stream's events, brought up to date."""
        return (await self._fold(stream)).state

    async def _fold(self, stream: str) -> _Fold[S]:
        fold = self._folds.get(stream)
        if fold is None:
            fold = _Fold(state=self._aggregate.initial(), version=0)
        newer = await self._store.load(stream, after_version=fold.version)
        decoded = [self._aggregate.codec.decode(event.type, event.data) for event in newer]
        return self._remember(stream, fold, decoded)

    def _remember(self, stream: str, fold: _Fold[S], events: Sequence[E]) -> _Fold[S]:
        state = fold.state
        for event in events:
            state = self._aggregate.evolve(state, event)
        fold = _Fold(state=state, version=fold.version + len(events))
        if fold.version:
            self._folds[stream] = fold
            self._folds.move_to_end(stream)
        while len(self._folds) > CACHED_STREAMS_MAX:
            self._folds.popitem(last=False)
        return fold

    def _new(self, event: E) -> NewEvent:
        name, data = self._aggregate.codec.encode(event)
        return NewEvent(event_id=self._ids.new_id("e"), type=name, data=data)
