"""Waiting for conditions instead of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

LIMIT_S = 120.0  # generous: only a failure takes that long, and other work may share the machine


async def until(
    condition: Callable[[], Any | Awaitable[Any]], *, what: str = "", limit_s: float = LIMIT_S
) -> Any:
    """Return the condition's first true value."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"did not happen within {limit_s} s: {what or condition}")
        await asyncio.sleep(0.005)
