"""The bus in memory: for the simulator and for tests, under the same contract."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.core.ports import Receive, Reply, Subscription


class MemoryBus:
    """Implements ``core.ports.Bus`` on one event loop."""

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
        """Store in the subject's stream; a repeated ``message_id`` is stored once."""
        raise NotImplementedError

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> Subscription:
        """Deliver stored messages in order, at least once, from where ``durable`` left off."""
        raise NotImplementedError
