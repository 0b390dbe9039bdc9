"""Logs: one JSON object a line for machines, or text for people.

The standard library's logging, because every dependency uses it; only the formatter is ours. Log a
decision when it changes, not each tick.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from opentelemetry import trace

_STANDARD: Final = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None)).keys() | {"message", "asctime"}
)
# They report each request or connection at INFO; ours say what matters of it.
_QUIET: Final = ("uvicorn.error", "uvicorn.access", "httpx", "nats")


def configure(*, service: str, level: str, style: str) -> None:
    """Send all logs to stderr.

    Args:
        service: named in every line.
        level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        style: ``json`` or ``text``.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s %(levelname)-7s {service} %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter(service=service) if style == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, trace, exception, and whatever ``extra`` brought."""

    def __init__(self, *, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            line["trace_id"] = f"{span.trace_id:032x}"
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD})
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
