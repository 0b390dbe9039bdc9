"""A handler that is seen: each command is a span, a count by outcome and a duration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from opentelemetry import trace

from everstep.core.errors import EverstepError
from everstep.core.ports import Consumed, EventStore
from everstep.core.system import Clock, IdSource
from everstep.service.handler import Aggregate, Handled, Handler
from everstep.service.metrics import Metrics

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")

_TRACER: Final = trace.get_tracer("everstep.handler")


class ObservedHandler(Handler[C, S, E]):
    """``Handler``, measured."""

    def __init__(
        self,
        aggregate: Aggregate[C, S, E],
        store: EventStore,
        ids: IdSource,
        *,
        metrics: Metrics,
        clock: Clock,
        on_commit: Sequence[Callable[[], None]] = (),
    ) -> None:
        super().__init__(aggregate, store, ids, on_commit=on_commit)
        self._metrics = metrics
        self._clock = clock

    async def handle(self, command: C, *, consumed: Consumed | None = None) -> Handled[S, E]:
        """Handle as ``Handler.handle`` does."""
        aggregate, name = self.aggregate.name, type(command).__name__
        started_ms = self._clock.monotonic_ms()
        outcome = "failed"
        with _TRACER.start_as_current_span(f"handle {name}") as span:
            try:
                handled = await super().handle(command, consumed=consumed)
                outcome = _outcome(handled)
            except EverstepError as error:
                outcome = error.code
                raise
            finally:
                span.set_attribute("outcome", outcome)
                seconds = (self._clock.monotonic_ms() - started_ms) / 1000
                self._metrics.commands.labels(aggregate, name, outcome).inc()
                self._metrics.command_seconds.labels(aggregate, name).observe(seconds)
        for event in handled.events:
            self._metrics.events.labels(aggregate, type(event).__name__).inc()
        return handled


def _outcome(handled: Handled[S, E]) -> str:
    if handled.rejected is not None:
        return "rejected"
    return "accepted" if handled.events else "already_so"
