"""Remembers what the monitor has noticed of itself, and says whether it can see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from everstep.monitor.detectors.sight import PAUSE_MS, Sight, blind_because
from everstep.monitor.policy import Limits

log = logging.getLogger(__name__)


class Eyes:
    """Looked through at every tick; ``blind`` says why nobody can be judged now, or ""."""

    def __init__(self, connected: Callable[[], bool], limits: Limits) -> None:
        self.blind = "starting"
        self._connected = connected
        self._limits = limits
        self._was_connected = False
        self._connected_since_ms = 0
        self._ticked_ms = 0
        self._started_ms = 0
        self._paused_until_ms = 0
        self._unrecorded_ms = 0

    def could_not_store(self, now_ms: int) -> None:
        """Note that something that was seen could not be stored."""
        self._unrecorded_ms = now_ms

    def open(self, now_ms: int, heard_ms: Sequence[int]) -> bool:
        """Look; says whether they see again from now on. ``heard_ms`` is of every host."""
        connected = self._connected()
        if connected and not self._was_connected:
            self._connected_since_ms = now_ms
        if self._ticked_ms and now_ms - self._ticked_ms > PAUSE_MS:
            self._paused_until_ms = now_ms
        self._was_connected, self._ticked_ms = connected, now_ms
        self._started_ms = self._started_ms or now_ms
        sight = Sight(
            started_ms=self._started_ms,
            connected=connected,
            connected_since_ms=self._connected_since_ms,
            paused_until_ms=self._paused_until_ms,
            unrecorded_ms=self._unrecorded_ms,
            heard_ms=heard_ms,
            silence_ms=self._limits.silence_ms,
        )
        was, self.blind = self.blind, blind_because(now_ms, sight)
        if self.blind == was:
            return False
        log.warning("blind: %s; judging nobody" if self.blind else "sees again%s", self.blind)
        return not self.blind
