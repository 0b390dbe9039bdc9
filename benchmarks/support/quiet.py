"""How busy the machine is with other work, and waiting until it is not."""

from __future__ import annotations

import time
from typing import Final

import psutil
from benchmarks.support.processes import say

LOOK_S: Final = 3.0  # long enough that one burst does not decide
QUIET_SHARE: Final = 0.2  # of all cores; an idle stack of ours takes a few per cent


def busy_share() -> float:
    """Return the share of all cores that is in use just now, when we do nothing ourselves."""
    return round(float(psutil.cpu_percent(interval=LOOK_S)) / 100, 2)


def wait_until_quiet(patience_s: float) -> float:
    """Wait until the machine is quiet, or patience ends; returns how busy it then is."""
    deadline = time.monotonic() + patience_s
    told = False
    while (busy := busy_share()) > QUIET_SHARE and time.monotonic() < deadline:
        if not told:
            say(f"waiting until the machine is quiet ({busy:.0%} busy)")
            told = True
    return busy
