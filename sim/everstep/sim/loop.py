"""An asyncio event loop in virtual time: nothing waits, and nothing outside can interfere.

The services' shells are asyncio code. On this loop they run unchanged: a sleep is over as soon as
nothing else is left to do before it, and two runs of one program take every turn alike, because the
loop's ready queue is first in, first out, and no thread, socket or signal ever puts anything in it.

Rejected: a clock passed to every ``sleep``. Each library call that waits (``wait_for``, locks,
conditions) would need a twin, and the simulator would run another program than the services do.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

# 2027-01-15 08:00 UTC, a round number of milliseconds since the Unix epoch. Chosen: a start that is
# visibly not today's, in a leap-free year.
EPOCH_MS: Final = 1_800_000_000_000
# Timers closer together than this fire in one turn; far below a millisecond, far above the rounding
# of a double after a year of seconds (4e-9).
RESOLUTION_S: Final = 1e-7


class StalledError(AssertionError):
    """Every task waits for something that nobody will do: the world has deadlocked."""


class _NoSockets(selectors.BaseSelector):
    """Lets virtual time pass instead of waiting for file descriptors."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.now_s = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take the loop's own wake-up pipe; it never speaks."""
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj=fileobj, fd=number, events=events, data=data)
        self._keys[number] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a descriptor."""
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the clock by ``timeout`` [s]."""
        if timeout is None:
            raise StalledError(
                f"nothing is left to happen after {self.now_s:.3f} s, but the world has not ended"
            )
        self.now_s += max(timeout, 0.0)
        return []

    def get_map(self) -> Any:
        """Return the registered descriptors."""
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``time()`` jumps to the next timer when nothing is ready."""

    def __init__(self) -> None:
        self._virtual = _NoSockets()
        super().__init__(self._virtual)
        self._clock_resolution = RESOLUTION_S

    def time(self) -> float:
        """Return virtual seconds since the world began."""
        return self._virtual.now_s


class VirtualClock:
    """Implements ``core.system.Clock`` on a loop's virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return EPOCH_MS + round(self._loop.time() * 1e3)

    def monotonic_ms(self) -> float:
        """Return milliseconds since the world began."""
        return self._loop.time() * 1e3


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` in a world of its own and cancel what it leaves behind.

    Raises:
        StalledError: ``main`` waits for something that cannot happen any more.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
