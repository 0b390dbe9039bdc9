"""Identifiers that are safe in NATS subjects, object keys, file names and URLs.

A dot or a space in an id would split a subject, a slash a key; so one alphabet serves all of them.
"""

from __future__ import annotations

import re
from typing import Final

ID_LENGTH_MAX: Final = 64  # file names and subjects allow far more; longer ids do not fit a table
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def is_valid_id(text: str) -> bool:
    """Say whether ``text`` may name a host or a job."""
    return len(text) <= ID_LENGTH_MAX and _ID.fullmatch(text) is not None


def slug(text: str) -> str:
    """Turn any text into a valid id, e.g. ``"my run.v2"`` into ``"my-run-v2"``; ``x`` if empty."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")[:ID_LENGTH_MAX]
    return cleaned or "x"
