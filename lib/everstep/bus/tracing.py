"""Carries the trace context in message headers (W3C ``traceparent``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACEPARENT: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACER: Final = trace.get_tracer("everstep.bus")


def outgoing(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers with the current trace context added, if there is one."""
    carrier = dict(headers or {})
    if TRACEPARENT not in carrier:
        _PROPAGATOR.inject(carrier)
    return carrier


def current_traceparent() -> str:
    """Return the current trace context as text, or nothing."""
    return outgoing(None).get(TRACEPARENT, "")


@contextmanager
def incoming(operation: str, subject: str, headers: Mapping[str, str]) -> Iterator[None]:
    """Continue the sender's trace while a message is handled; free when it has none."""
    if TRACEPARENT not in headers:
        yield
        return
    parent = _PROPAGATOR.extract(headers)
    with _TRACER.start_as_current_span(
        operation, context=parent, kind=trace.SpanKind.CONSUMER, attributes={"subject": subject}
    ):
        yield


@contextmanager
def publishing(subject: str, traceparent: str) -> Iterator[None]:
    """Continue the trace in which an event was stored while it is published."""
    if not traceparent:
        yield
        return
    parent = _PROPAGATOR.extract({TRACEPARENT: traceparent})
    with _TRACER.start_as_current_span(
        "publish", context=parent, kind=trace.SpanKind.PRODUCER, attributes={"subject": subject}
    ):
        yield
