"""The bus in memory: for the simulator and for tests, under the same contract.

Everything happens on one event loop. Each subscription has a queue and a task, so a slow receiver
holds up nobody else; queues are unbounded, as memory of a test is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from everstep.bus.failures import failure, failure_in
from everstep.bus.guard import Failed, attempt
from everstep.bus.streams import matches, stream_of
from everstep.bus.tracing import incoming, outgoing
from everstep.core.errors import NoResponders, Unavailable
from everstep.core.ports import Message, Receive, Reply, Subscription

RETRY_PAUSE_S: Final = 0.01  # tests wait for it

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Listener:
    """One subscription; also its handle."""

    bus: MemoryBus
    subject: str
    queue: str
    inbox: asyncio.Queue[tuple[Message, asyncio.Future[bytes] | None] | None] = field(
        default_factory=asyncio.Queue
    )
    task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop delivering; what is in work is finished."""
        if self in self.bus.listeners:
            self.bus.listeners.remove(self)
            self.inbox.put_nowait(None)
        if self.task is not None and self.task is not asyncio.current_task():
            await asyncio.wait({self.task})


@dataclass(slots=True)
class _Durable:
    """How far a durable consumer has come in its stream."""

    next_index: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True, eq=False)
class _Consumer:
    """One ``consume``; also its handle."""

    grown: asyncio.Condition
    closing: bool = False
    task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop delivering; what is in work is finished."""
        self.closing = True
        async with self.grown:
            self.grown.notify_all()
        if self.task is not None and self.task is not asyncio.current_task():
            await asyncio.wait({self.task})


class MemoryBus:
    """Implements ``core.ports.Bus`` on one event loop."""

    def __init__(self) -> None:
        self.listeners: list[_Listener] = []
        self._stored: dict[str, list[Message]] = {}
        self._message_ids: set[tuple[str, str]] = set()
        self._durables: dict[str, _Durable] = {}
        self._grown = asyncio.Condition()
        self._turn = 0

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send to whoever listens now; lost when nobody does."""
        message = Message(subject=subject, data=data, headers=outgoing(headers))
        for listener in self._chosen(subject):
            listener.inbox.put_nowait((message, None))

    async def subscribe(self, subject: str, receive: Receive, *, queue: str = "") -> Subscription:
        """Deliver each message to ``receive``, one after the other."""
        listener = _Listener(bus=self, subject=subject, queue=queue)

        async def deliver() -> None:
            while (item := await listener.inbox.get()) is not None:
                message, _ = item
                with incoming("receive", message.subject, message.headers):
                    await attempt(receive(message), _log, f"receiver of {message.subject}")

        listener.task = asyncio.create_task(deliver(), name=f"subscribe {subject}")
        self.listeners.append(listener)
        return listener

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask and wait for one answer. Raises NoResponders, Unavailable."""
        chosen = self._chosen(subject)
        if not chosen:
            raise NoResponders(f"nobody serves {subject}")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        message = Message(subject=subject, data=data, headers=outgoing(headers))
        for listener in chosen:
            listener.inbox.put_nowait((message, answer))
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise Unavailable(f"{subject} did not answer within {timeout_s} s") from None

    async def serve(self, subject: str, reply: Reply, *, queue: str = "") -> Subscription:
        """Answer requests, concurrently."""
        listener = _Listener(bus=self, subject=subject, queue=queue)

        async def answer(message: Message, waiting: asyncio.Future[bytes] | None) -> None:
            with incoming("serve", message.subject, message.headers):
                result = await attempt(reply(message), _log, f"handler of {message.subject}")
            if waiting is None or waiting.done():
                return
            if not isinstance(result, Failed):
                waiting.set_result(result)
            elif (error := failure_in(subject, *failure(result.error))) is not None:
                waiting.set_exception(error)

        async def deliver() -> None:
            async with asyncio.TaskGroup() as group:
                while (item := await listener.inbox.get()) is not None:
                    group.create_task(answer(*item))

        listener.task = asyncio.create_task(deliver(), name=f"serve {subject}")
        self.listeners.append(listener)
        return listener

    async def publish_durable(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store in the subject's stream; a repeated ``message_id`` is stored once."""
        stream = stream_of(subject).name
        if (stream, message_id) in self._message_ids:
            return
        self._message_ids.add((stream, message_id))
        message = Message(subject=subject, data=data, headers=outgoing(headers))
        self._stored.setdefault(stream, []).append(message)
        await self.publish(subject, data, headers=message.headers)
        async with self._grown:
            self._grown.notify_all()

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> Subscription:
        """Deliver stored messages in order, at least once, from where ``durable`` left off."""
        messages = self._stored.setdefault(stream_of(subject).name, [])
        state = self._durables.setdefault(durable, _Durable())
        consumer = _Consumer(grown=self._grown)

        async def deliver() -> None:
            while True:
                async with self._grown:
                    await self._grown.wait_for(
                        lambda: consumer.closing or state.next_index < len(messages)
                    )
                if consumer.closing:
                    return
                async with state.turn:
                    if state.next_index >= len(messages):
                        continue
                    message = messages[state.next_index]
                    handled = await _handle(message, subject, receive)
                    state.next_index += handled
                if not handled:
                    await asyncio.sleep(RETRY_PAUSE_S)

        consumer.task = asyncio.create_task(deliver(), name=f"consume {durable}")
        return consumer

    def _chosen(self, subject: str) -> list[_Listener]:
        """Return all plain listeners and, by turns, one of each queue group."""
        matching = [item for item in self.listeners if matches(item.subject, subject)]
        groups: dict[str, list[_Listener]] = {}
        for listener in matching:
            groups.setdefault(listener.queue, []).append(listener)
        self._turn += 1
        plain = groups.pop("", [])
        return plain + [members[self._turn % len(members)] for members in groups.values()]


async def _handle(message: Message, subject: str, receive: Receive) -> bool:
    """Hand a stored message over; say whether it is done with."""
    if not matches(subject, message.subject):
        return True
    with incoming("consume", message.subject, message.headers):
        result = await attempt(receive(message), _log, f"consumer of {message.subject}")
    return not isinstance(result, Failed)
