"""Says whether the monitor itself can see.

A monitor whose bus is away, that was paused, or that hears nothing from most of the fleet at once
has learnt about itself, not about the hosts. It says so and judges nobody until it sees again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Agents reconnect to a restarted bus within about a second (their reconnect pause is 0.2 to 1 s); a
# host that is not back after three is judged like any other.
RECONNECT_GRACE_MS: Final = 3_000
# The watch loop runs every 0.1 s; a gap of a second means that this process was stopped or starved.
# A monitor that has just started may have come up with the whole fleet (power, a stack taken down
# and up): agents need some seconds to join, and are not lost because they are slower than we are.
START_GRACE_MS: Final = 6_000
PAUSE_MS: Final = 1_000
PAUSE_GRACE_MS: Final = 2_000  # heartbeats that queued up meanwhile have been read by then
# While its database is away, reports wait on the bus and are tried again every 5 s at the latest
# (bus/durable.py): what happened meanwhile is known only when they have come through.
RECORD_GRACE_MS: Final = 6_000
FLEET_MIN: Final = 3  # of fewer hosts, "most are silent" says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the monitor knows of itself; times on its own clock, 0 for never.

    ``unrecorded_ms`` is when it last could not store what it saw.
    """

    started_ms: int
    connected: bool
    connected_since_ms: int
    paused_until_ms: int
    unrecorded_ms: int
    heard_ms: Sequence[int]
    silence_ms: int


def blind_because(now_ms: int, sight: Sight) -> str:
    """Return why the monitor cannot judge at ``now_ms``, or "" if it can."""
    if not sight.connected:
        return "the bus is away"
    if now_ms - sight.started_ms < START_GRACE_MS:
        return "this process has only just started"
    if now_ms - sight.connected_since_ms < RECONNECT_GRACE_MS:
        return "the bus has only just come back"
    if now_ms - sight.paused_until_ms < PAUSE_GRACE_MS:
        return "this process was paused"
    if now_ms - sight.unrecorded_ms < RECORD_GRACE_MS:
        return "what was seen could not be stored: reports may still be waiting"
    silent = sum(1 for heard in sight.heard_ms if now_ms - heard > sight.silence_ms)
    if len(sight.heard_ms) >= FLEET_MIN and 2 * silent > len(sight.heard_ms):
        return f"{silent} of {len(sight.heard_ms)} hosts went silent at once"
    return ""
