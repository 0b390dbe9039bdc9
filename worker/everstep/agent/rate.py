"""Holds a host's uploads to so many bytes a second, all its ranks together.

Each piece is given a time at which it may go, one after the other. Time that nobody used is not
saved up: a burst is what training's own traffic would feel.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from everstep.core.errors import RefusedError
from everstep.core.system import Clock
from everstep.objectstore.files import CHUNK_BYTES

# So many pieces a second make the rate smooth for a network, whose buffers hold some 100 ms.
PIECES_PER_S: Final = 20
PIECE_BYTES_MIN: Final = 16 << 10  # below it, requests' own overhead is what is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """How far the line is spoken for [ms of a clock that never jumps]."""

    until_ms: float = 0.0


def promise(
    promised: Promised, *, at_ms: float, size_bytes: int, bytes_per_s: int
) -> tuple[Promised, float]:
    """Give a piece its turn.

    Args:
        promised: to those who asked before.
        at_ms: now.
        size_bytes: of the piece.
        bytes_per_s: of the host, above 0.

    Returns:
        What is promised now, and how long the piece has to wait [ms].
    """
    begin_ms = max(promised.until_ms, at_ms)
    until_ms = begin_ms + size_bytes * 1_000 / bytes_per_s
    return Promised(until_ms=until_ms), begin_ms - at_ms


def piece_bytes(bytes_per_s: int) -> int:
    """Return how much to send at once; 0 bytes a second are no limit."""
    if not bytes_per_s:
        return CHUNK_BYTES
    return min(CHUNK_BYTES, max(PIECE_BYTES_MIN, bytes_per_s // PIECES_PER_S))


class HostRate:
    """The line of one host, shared by all threads that upload."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._promised = Promised()
        self._lock = threading.Lock()

    def turn_ms(self, size_bytes: int, bytes_per_s: int) -> float:
        """Take a turn; returns how long to wait for it [ms]."""
        with self._lock:
            self._promised, wait_ms = promise(
                self._promised,
                at_ms=self._clock.monotonic_ms(),
                size_bytes=size_bytes,
                bytes_per_s=bytes_per_s,
            )
        return wait_ms


class UploadPace:
    """Implements ``core.ports.Pace`` for one shard, and ends its threads when it is cut off."""

    def __init__(self, rate: HostRate, bytes_per_s: int) -> None:
        self._rate = rate
        self._bytes_per_s = bytes_per_s
        self._cut = threading.Event()

    @property
    def chunk_bytes(self) -> int:
        """How much to send at once, at most."""
        return piece_bytes(self._bytes_per_s)

    def wait(self, size_bytes: int) -> None:
        """Block until so many bytes may go. Raises RefusedError when it is cut off."""
        wait_ms = 0.0
        if self._bytes_per_s:
            wait_ms = self._rate.turn_ms(size_bytes, self._bytes_per_s)
        if self._cut.wait(wait_ms / 1_000) if wait_ms else self._cut.is_set():
            raise RefusedError("cut_off", "the upload was given up")

    def cut(self) -> None:
        """Let no further piece go."""
        self._cut.set()
