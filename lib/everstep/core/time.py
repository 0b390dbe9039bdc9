"""Time as a value: integer milliseconds since the Unix epoch.

Deciders receive it as an argument; only ``core/system.py`` reads a clock.
"""

from __future__ import annotations

from typing import Final, NewType

Millis = NewType("Millis", int)

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
