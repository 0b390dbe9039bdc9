"""Turns away URLs with control characters, NUL above all, before any route runs.

No id, name or number contains one, and PostgreSQL refuses NUL with an error of its own, so one
place refuses them for all routes. Bodies are not screened: they hold free text, where a line feed
is right; what the database cannot store of them is refused when it says so (``http.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Screen:
    """Answers requests whose path or query holds a control character with ``refuse(why)``."""

    def __init__(self, app: ASGIApp, refuse: Callable[[str], ASGIApp]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        app = self._app
        if scope["type"] == "http":
            problem = problem_in(scope["path"], scope["query_string"])
            app = self._refuse(problem) if problem else app
        await app(scope, receive, send)


def problem_in(path: str, query: bytes) -> str:
    """Say which part of a URL cannot be used and why; "" for none.

    Args:
        path: percent-decoded.
        query: as it was sent.
    """
    for what, text in _parts(path, query):
        found = CONTROL.search(text)
        if found is not None:
            return (
                f"{what} holds the control character U+{ord(found.group()):04X}, which no id or "
                "value may contain: send it without"
            )
    return ""


def _parts(path: str, query: bytes) -> Iterator[tuple[str, str]]:
    yield "the path", path
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        yield "a query parameter's name", name
        yield f"query parameter {name!r}", value
