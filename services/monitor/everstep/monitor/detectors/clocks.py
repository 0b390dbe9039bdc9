"""Finds hosts whose clock is off, or goes at another rate, by when their heartbeats say they left.

A heartbeat is received after it was sent: what it has taken is in the difference, and is never
negative. The smallest difference of a minute has the least of it in it: the clock's own.

A wrong clock breaks nothing here: order comes from the bus, and windows are measured on the
monitor's clock. It moves the times that a host tells: when a rank ended, and when a step was
complete, which the ledger takes to be now at the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everstep.core.record import Record

MINUTE_MS: Final = 60_000
MINUTES_MAX: Final = 10
# Beyond a second, the times of an incident's report are no longer of use. NTP steps a clock that is
# off by more than 128 ms (RFC 5905 section 11.3), so such a host has none that works.
OFF_MS_MAX: Final = 1_000
# NTP corrects rates of up to 500 ppm (RFC 5905 section 11.3); a clock beyond that cannot be kept.
DRIFT_PPM_MAX: Final = 500
DRIFT_MINUTES_MIN: Final = 5  # 500 ppm are 120 ms then, far above the scatter of a network


class ClockMinute(Record, frozen=True, kw_only=True):
    """The smallest difference of one minute [ms], positive where the host's clock is behind."""

    minute: int
    off_ms: int


def clock_fault(minutes: Sequence[ClockMinute], *, unsynchronised: bool) -> str:
    """Say what is wrong with a host's clock; "" for nothing.

    Args:
        minutes: whole ones, oldest first.
        unsynchronised: that nothing keeps it right, by its kernel's word; alone it is no fault.
    """
    if not minutes:
        return ""
    # Of two minutes each: one may have begun late, or had late messages only.
    first_ms = min(one.off_ms for one in minutes[:2])
    last_ms = min(one.off_ms for one in minutes[-2:])
    said = []
    if abs(last_ms) > OFF_MS_MAX:
        way = "behind" if last_ms > 0 else "ahead"
        said.append(f"is {abs(last_ms)} ms {way} (limit {OFF_MS_MAX})")
    passed = minutes[-1].minute - minutes[0].minute
    if passed >= DRIFT_MINUTES_MIN:
        ppm = round(1e6 * (last_ms - first_ms) / ((passed - 1) * MINUTE_MS))
        if abs(ppm) > DRIFT_PPM_MAX:
            said.append(
                f"goes {abs(ppm)} ppm too {'slow' if ppm > 0 else 'fast'} over {passed} min"
            )
    if not said:
        return ""
    kernel = ", and its kernel says that nothing keeps it right" if unsynchronised else ""
    return f"its clock {' and '.join(said)}{kernel}: times that it tells are off by as much"
