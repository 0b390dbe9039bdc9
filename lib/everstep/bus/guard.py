"""The one broad ``except``: at the edge between our loops and the work they carry out.

A handler that raises must neither end the loop that called it nor vanish silently: the loop gets
the exception as a value, and it is logged here, once, with its traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Generic, TypeVar

from everstep.core.errors import EverstepError

T = TypeVar("T")


class Failed(Generic[T]):
    """What became of work that raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def attempt(work: Awaitable[T], logger: logging.Logger, what: str) -> T | Failed[T]:
    """Await ``work``; return its result, or its exception as ``Failed`` after logging it.

    Faults that may pass by themselves (``EverstepError.retryable``) are logged without a traceback.
    """
    try:
        return await work
    except Exception as error:
        expected = isinstance(error, EverstepError) and error.retryable
        logger.warning(
            "%s failed: %s: %s", what, type(error).__name__, error, exc_info=not expected
        )
        return Failed(error)
