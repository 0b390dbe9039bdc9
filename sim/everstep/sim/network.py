"""The bus as its users see it: late, sometimes away, and with a server that may be restarted.

``lib``'s in-memory bus is the server. An ``Endpoint`` is one process's connection to it and does
what the real one (``everstep.bus.nats``) does when the connection or the server is away: plain
messages are dropped, durable ones raise ``Unavailable``, requests wait for the connection. On top
come what real networks do: latency, a rare long delay, a message that is lost on its way to the
store, an answer that is lost after the work was done, a stored message that is handed out twice.

A connection keeps its order, as TCP does; between two connections anything goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from everstep.bus.memory import MemoryBus
from everstep.core.errors import NoResponders, Unavailable
from everstep.core.ports import Message, Receive, Reply, Subscription

RECONNECT_S: Final = 0.25  # as everstep.bus.nats
DURABLE_TIMEOUT_S: Final = 3.0  # there too: how long a store's word is waited for
REDELIVERY_S: Final = 2.0  # as everstep.bus.durable: a killed consumer's message waits that long


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How bad the network is. Probabilities are for one message; times in seconds."""

    latency_s: float = 0.0005
    late_share: float = 0.0  # of messages that take ``late_s`` instead
    late_s: float = 0.5
    lost_share: float = 0.0  # of messages, of stored ones too, and of answers
    doubled_share: float = 0.0  # of stored messages that are handed out once more


class Network:
    """The server and everybody's way to it."""

    def __init__(self, random: Random, conditions: Conditions) -> None:
        self.server = MemoryBus()
        self.conditions = conditions
        self.random = random
        self.server_up_s = 0.0
        self.server_up = asyncio.Event()
        self.server_up.set()
        self.endpoints: dict[str, Endpoint] = {}
        self._on_drop: list[Callable[[str], None]] = []

    def on_drop(self, tell: Callable[[str], None]) -> None:
        """Call ``tell(name)`` when the server loses a client's connection."""
        self._on_drop.append(tell)

    def endpoint(self, name: str) -> Endpoint:
        """Open a connection; an older one of this name must have been killed."""
        assert name not in self.endpoints, f"{name} is connected already"
        endpoint = Endpoint(name, self)
        self.endpoints[name] = endpoint
        return endpoint

    def dropped(self, name: str) -> None:
        """Tell that the server lost ``name``."""
        if self.server_up.is_set():
            for tell in self._on_drop:
                tell(name)

    async def restart_server(self, away_s: float) -> None:
        """Take the server away for a while; what was stored is kept."""
        self.server_up.clear()
        await asyncio.sleep(away_s)
        self.server_up.set()
        self.server_up_s = asyncio.get_running_loop().time()

    def delay_s(self) -> float:
        """Draw one message's way to the server or from it."""
        conditions = self.conditions
        if conditions.late_share and self.random.random() < conditions.late_share:
            return conditions.late_s * (0.5 + self.random.random())
        return conditions.latency_s * (0.5 + self.random.random())

    def loses(self) -> bool:
        """Draw whether a message or an answer is lost."""
        share = self.conditions.lost_share
        return bool(share) and self.random.random() < share

    def doubles(self) -> bool:
        """Draw whether a stored message is handed out again."""
        share = self.conditions.doubled_share
        return bool(share) and self.random.random() < share


class Endpoint:
    """Implements ``core.ports.Bus`` for one process."""

    def __init__(self, name: str, network: Network) -> None:
        """Use ``Network.endpoint``."""
        self.name = name
        self._network = network
        self._link_up = asyncio.Event()
        self._link_up.set()
        self._subscriptions: list[Any] = []
        self._sent_until_s = 0.0
        self._mended_s = 0.0
        self.loses_stored = False  # what it sends to be stored, and nothing else
        self.loses_answers = False  # to what it is asked
        self.killed = False

    @property
    def connected(self) -> bool:
        """Whether the server is reachable now."""
        return self._link_up.is_set() and self._network.server_up.is_set() and not self.killed

    @property
    def reachable_s(self) -> float:
        """Since when the server can be reached, if it can."""
        return max(self._mended_s, self._network.server_up_s)

    def cut(self) -> None:
        """Take the link away (a partition)."""
        if self._link_up.is_set():
            self._link_up.clear()
            self._network.dropped(self.name)

    def mend(self) -> None:
        """Bring the link back."""
        self._link_up.set()
        self._mended_s = asyncio.get_running_loop().time()

    def vanish(self) -> None:
        """Lose the machine: nobody is told, and what it listened to gets no answers."""
        self._link_up.clear()
        self._network.endpoints.pop(self.name, None)

    def kill(self) -> None:
        """End it as a killed process's connection ends: at once, whatever is in work."""
        self.killed = True
        server = self._network.server
        for subscription in self._subscriptions:
            if subscription in server.listeners:
                server.listeners.remove(subscription)
            if subscription.task is not None:
                subscription.task.cancel()
        self._subscriptions.clear()
        if self._network.endpoints.get(self.name) is self:
            del self._network.endpoints[self.name]
        self._network.dropped(self.name)

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send to whoever listens now; lost when nobody does, or on the way."""
        if not self.connected or self._network.loses():
            return
        await self._way_out()
        if self.connected:
            await self._network.server.publish(subject, data, headers=headers)

    async def subscribe(self, subject: str, receive: Receive, *, queue: str = "") -> Subscription:
        """Deliver each message to ``receive``, one after the other."""
        await self._connection()

        async def deliver(message: Message) -> None:
            await asyncio.sleep(self._network.delay_s())
            if self.connected:
                await receive(message)

        return self._keep(await self._network.server.subscribe(subject, deliver, queue=queue))

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask and wait for one answer. Raises NoResponders, Unavailable."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection()
                await self._way_out()
                answer = await self._network.server.request(
                    subject, data, timeout_s=timeout_s, headers=headers
                )
                await asyncio.sleep(self._network.delay_s())
                if self._network.loses() or not self.connected:
                    await asyncio.sleep(timeout_s)
                return answer
        except TimeoutError:
            raise Unavailable(f"{subject} did not answer within {timeout_s} s") from None

    async def serve(self, subject: str, reply: Reply, *, queue: str = "") -> Subscription:
        """Answer requests, concurrently."""
        await self._connection()

        async def answer(message: Message) -> bytes:
            await asyncio.sleep(self._network.delay_s())
            await self._reached()
            result = await reply(message)
            await self._reached()
            if self.loses_answers:
                await asyncio.Event().wait()  # whoever asked gives up
            return result

        return self._keep(await self._network.server.serve(subject, answer, queue=queue))

    async def publish_durable(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store in the subject's stream; raises Unavailable, also when only the answer is lost."""
        if not self.connected:
            raise Unavailable(f"{subject} was not stored: the server is away")
        await self._way_out()
        if not self.connected:
            raise Unavailable(f"{subject} was not stored for certain: the connection broke")
        if self.loses_stored or self._network.loses():
            await asyncio.sleep(DURABLE_TIMEOUT_S)
            raise Unavailable(f"{subject} was not stored: it was lost on its way")
        await self._network.server.publish_durable(
            subject, data, message_id=message_id, headers=headers
        )
        await asyncio.sleep(self._network.delay_s())
        if self._network.loses():
            await asyncio.sleep(DURABLE_TIMEOUT_S)
            raise Unavailable(f"{subject} was stored, but the answer was lost")
        if not self.connected:
            raise Unavailable(f"{subject} was stored, but not for certain: the connection broke")

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> Subscription:
        """Deliver stored messages in order, at least once, from where ``durable`` left off."""
        await self._connection()

        async def deliver(message: Message) -> None:
            await asyncio.sleep(self._network.delay_s())
            await self._connection()
            await receive(message)
            if self._network.doubles():
                await receive(message)
            if not self.connected:
                raise Unavailable(f"{durable}: the acknowledgement was lost")

        return self._keep(await self._network.server.consume(subject, deliver, durable=durable))

    def _keep(self, subscription: Subscription) -> Subscription:
        self._subscriptions.append(subscription)
        return subscription

    async def _connection(self) -> None:
        """Wait until the server can be reached."""
        while not self.connected:
            await self._network.server_up.wait()
            await self._link_up.wait()
            await asyncio.sleep(RECONNECT_S)

    async def _way_out(self) -> None:
        """Let a message travel to the server, behind what this connection sent before."""
        loop = asyncio.get_running_loop()
        arrival_s = max(loop.time() + self._network.delay_s(), self._sent_until_s)
        self._sent_until_s = arrival_s
        await asyncio.sleep(arrival_s - loop.time())

    async def _reached(self) -> None:
        """Hang as an unreachable process does, until its asker has given up."""
        if not self.connected:
            await self._connection()
            raise Unavailable(f"{self.name} lost its connection while it was asked")


async def quietly(work: Awaitable[Any]) -> None:
    """Do something whose failure is the network's business."""
    with suppress(Unavailable, NoResponders):
        await work
