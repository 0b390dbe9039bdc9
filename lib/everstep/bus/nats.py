"""The bus on NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from everstep.core.ports import Receive, Reply, Subscription


class NatsBus:
    """Implements ``core.ports.Bus``; connects in the background and reconnects forever."""

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, name: str) -> AsyncIterator[NatsBus]:
        """Start connecting; ``name`` is what the server shows, agents use ``agent:<host_id>``.

        Does not wait for the server: publishing works at once (kept for a while, then dropped),
        while ``subscribe``, ``serve`` and ``consume`` wait for the first connection.
        """
        raise NotImplementedError
        yield

    @property
    def connected(self) -> bool:
        """Whether the server is reachable now."""
        raise NotImplementedError

    async def wait_connected(self) -> None:
        """Return when connected and the durable streams exist."""
        raise NotImplementedError

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send to whoever listens now; lost when nobody does."""
        raise NotImplementedError

    async def subscribe(self, subject: str, receive: Receive, *, queue: str = "") -> Subscription:
        """Deliver each message to ``receive``, one after the other."""
        raise NotImplementedError

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask and wait for one answer. Raises NoResponders, Unavailable."""
        raise NotImplementedError

    async def serve(self, subject: str, reply: Reply, *, queue: str = "") -> Subscription:
        """Answer requests, concurrently."""
        raise NotImplementedError

    async def publish_durable(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store in the subject's stream and wait for the server's word. Raises Unavailable."""
        raise NotImplementedError

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> Subscription:
        """Deliver stored messages in order, at least once, from where ``durable`` left off."""
        raise NotImplementedError
