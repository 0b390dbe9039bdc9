"""Log lines that machines read."""

from __future__ import annotations

import json
import logging
import sys

from everstep.bus.tracing import incoming
from everstep.service.logging import JsonFormatter


def line(record: logging.LogRecord) -> dict[str, str]:
    """Format and parse."""
    text = JsonFormatter(service="toy").format(record)
    assert "\n" not in text
    return json.loads(text)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    """A log record as a logger makes it."""
    logger = logging.getLogger("everstep.test")
    return logger.makeRecord(
        logger.name, logging.WARNING, "f.py", 1, message, args, sys.exc_info(), extra=extra
    )


def test_line_holds_what_a_reader_needs() -> None:
    """Time, level, service, logger, message, and what ``extra`` brought."""
    parsed = line(record("host %s lost", "h1", host_id="h1", step=7))
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {
        "level": "WARNING",
        "service": "toy",
        "logger": "everstep.test",
        "message": "host h1 lost",
        "host_id": "h1",
        "step": 7,
    }


def test_exception_is_one_field_of_one_line() -> None:
    """A traceback does not tear a log apart."""
    try:
        int("broken")
    except ValueError:
        parsed = line(record("failed"))
    assert "ValueError: invalid literal" in parsed["exception"]


def test_line_names_the_trace_that_it_belongs_to() -> None:
    """Log and trace are found from each other."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    with incoming("serve", "subject", headers):
        assert line(record("inside"))["trace_id"] == trace_id
    assert "trace_id" not in line(record("outside"))
