"""Traces: always recorded so that ids appear in logs and messages, exported only when asked to.

``OTEL_EXPORTER_OTLP_ENDPOINT`` (OpenTelemetry's own variable) turns the export on. Without it spans
are made and dropped, which costs microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def tracing(service: str) -> Iterator[TracerProvider]:
    """Make this process record spans as ``service`` until the block ends."""
    provider = TracerProvider(resource=Resource.create({"service.name": f"everstep-{service}"}))
    if os.environ.get(ENDPOINT_VARIABLE):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)  # the API's own global: libraries look there
    try:
        yield provider
    finally:
        provider.shutdown()
