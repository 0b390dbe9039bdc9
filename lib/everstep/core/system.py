"""The only real clock, id source and randomness of the project.

Everything else takes a ``Clock`` or an ``IdSource`` as an argument, so that the simulator can run
the same code under a virtual clock and replay it from a seed.
"""

from __future__ import annotations

import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """Reads the time."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> float:
        """Return milliseconds of a clock that never jumps."""
        ...


class IdSource(Protocol):
    """Makes identifiers."""

    def new_id(self, prefix: str) -> str:
        """Return a fresh id that starts with ``prefix``."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Return milliseconds of a clock that never jumps."""
        return time.monotonic_ns() / 1e6


class RandomIds:
    """Ids from the operating system's randomness: 64 bits, enough for one fleet's lifetime."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix-<16 hex digits>``, or the digits alone for an empty prefix."""
        digits = secrets.token_hex(8)
        return f"{prefix}-{digits}" if prefix else digits
