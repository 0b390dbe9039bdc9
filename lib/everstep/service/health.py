"""What a service says about itself: is it alive, can it work, and if not, what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from everstep.core.errors import Unavailable

CHECK_TIMEOUT_S: Final = 2.0  # a probe's own patience is usually a few seconds

Check = Callable[[], Awaitable[str]]


class Health:
    """Collects checks (asked each time) and troubles (told by loops)."""

    def __init__(self) -> None:
        self._phase = "starting"
        self._checks: dict[str, Check] = {}
        self._troubles: dict[str, str] = {}

    def phase(self, phase: str) -> None:
        """Say what the process is doing: anything but ``running`` means not ready."""
        self._phase = phase

    @property
    def running(self) -> bool:
        """Whether start-up is over and shut-down has not begun."""
        return self._phase == "running"

    def check(self, name: str, check: Check) -> None:
        """Ask ``check`` at each readiness probe; it returns what is wrong, or nothing."""
        self._checks[name] = check

    def trouble(self, name: str, what: str) -> None:
        """Tell what a loop suffers from; empty when it works again."""
        if what:
            self._troubles[name] = what
        else:
            self._troubles.pop(name, None)

    async def report(self) -> tuple[bool, dict[str, str]]:
        """Return whether the service can work, and the state of each part."""
        checks = dict(self._checks)  # start-up adds to them while we wait
        results = await asyncio.gather(*(_ask(check) for check in checks.values()))
        parts = {name: result or "ok" for name, result in zip(checks, results, strict=True)}
        parts.update(self._troubles)
        if not self.running:
            parts["process"] = self._phase
        return all(state == "ok" for state in parts.values()), parts


async def _ask(check: Check) -> str:
    try:
        return await asyncio.wait_for(check(), CHECK_TIMEOUT_S)
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_S} s"
    except Unavailable as error:
        return str(error)
