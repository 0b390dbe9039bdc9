"""The handle of a plain NATS subscription, and what arrives on one."""

from __future__ import annotations

import asyncio
import contextlib

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from everstep.core.ports import Message


class Subscribed:
    """A running plain subscription."""

    def __init__(self, raw: NatsSubscription, in_work: set[asyncio.Task[None]]) -> None:
        self._raw: NatsSubscription | None = raw
        self._in_work = in_work

    async def close(self) -> None:
        """Stop delivering; what is in work is finished."""
        if self._raw is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._raw.unsubscribe()
            self._raw = None
        if self._in_work:
            await asyncio.wait(set(self._in_work))


def message_of(raw: Msg) -> Message:
    """Return a message as our ports know it."""
    return Message(subject=raw.subject, data=raw.data, headers=raw.headers or {})
