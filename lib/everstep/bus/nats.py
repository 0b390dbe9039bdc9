"""The bus on NATS.

Connects in the background and reconnects forever: no caller ever sees a closed connection, only
``Unavailable``. While the server is away, plain publishing goes into a bounded buffer and is
dropped when that is full, so that it neither blocks nor raises: heartbeats and metrics are told
again anyway, and what must be told uses ``publish_durable``, whose caller learns that it was not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from everstep.bus.durable import DurableConsumer, ensure_streams
from everstep.bus.failures import failure, failure_in
from everstep.bus.guard import Failed, attempt
from everstep.bus.streams import stream_of
from everstep.bus.subscribed import Subscribed, message_of
from everstep.bus.tracing import incoming, outgoing
from everstep.core.errors import InvalidInput, NoResponders, Unavailable
from everstep.core.ports import Receive, Reply, Subscription

RECONNECT_WAIT_S: Final = 0.25  # a restarted server is found again within a recovery's budget
CONNECT_TIMEOUT_S: Final = 2.0
# A server that is gone without a word (its machine lost) is noticed after two unanswered pings.
PING_INTERVAL_S: Final = 3
PINGS_OUTSTANDING_MAX: Final = 2
PENDING_BYTES_MAX: Final = 2 * 1024 * 1024  # minutes of one host's metrics
FLUSH_TIMEOUT_S: Final = 1.0  # a stuck connection holds a publisher up no longer than this
DURABLE_TIMEOUT_S: Final = 3.0  # a store takes milliseconds; the caller retries
# A restore of 16,384 ranks from the object store is the largest message: 1.9 MB, 2.7 MB with the
# longest job id. A server that is told nothing takes 1 MiB; what to set leaves room.
PAYLOAD_BYTES_NEEDED: Final = 4 * 1024 * 1024
PAYLOAD_SETTING: Final = "max_payload: 8MB"
HANDLERS_MAX: Final = 256  # requests in work at once, of each served subject; more wait in line

_log = logging.getLogger(__name__)


class NatsBus:
    """Implements ``core.ports.Bus``."""

    def __init__(self, url: str, *, name: str, durable: bool = True) -> None:
        """Use ``open``."""
        self._durable = durable
        self._url = url
        self._name = name
        self._client = Client()
        self._connected = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._setting_up: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._last_error = ""
        self._closing = False
        self._subscribed: set[Subscribed] = set()
        self._consumers: set[DurableConsumer] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, name: str, durable: bool = True) -> AsyncIterator[NatsBus]:
        """Start connecting; ``name`` is what the server shows, agents use ``agent:<host_id>``.

        Does not wait for the server: publishing works at once (kept for a while, then dropped),
        while ``subscribe``, ``serve`` and ``consume`` wait for the first connection.
        ``durable`` False is for accounts without JetStream, the server's own: no streams there.
        """
        bus = cls(url, name=name, durable=durable)
        bus._connecting = asyncio.create_task(bus._connect(), name="connect to NATS")
        try:
            yield bus
        finally:
            await bus._close()

    @property
    def connected(self) -> bool:
        """Whether the server is reachable now."""
        return bool(self._client.is_connected)

    async def wait_connected(self) -> None:
        """Return when connected and the durable streams exist."""
        await self._ready.wait()

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send to whoever listens now; lost when nobody does. Raises InvalidInput: too large."""
        if not self._connected.is_set():
            return
        carried = outgoing(headers)
        if error := self._too_large(subject, data, carried):
            raise error
        try:
            await self._client.publish(subject, data, headers=carried or None)
        except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError):
            self._note("the buffer is full: messages are dropped until NATS is back")

    async def subscribe(self, subject: str, receive: Receive, *, queue: str = "") -> Subscription:
        """Deliver each message to ``receive``, one after the other."""

        async def deliver(raw: Msg) -> None:
            message = message_of(raw)
            with incoming("receive", message.subject, message.headers):
                await attempt(receive(message), _log, f"receiver of {message.subject}")

        return await self._listen(subject, queue, deliver)

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask and wait for one answer. Raises NoResponders, Unavailable, InvalidInput."""
        answer = message_of(await self._request(subject, data, timeout_s, outgoing(headers)))
        error = failure_in(subject, answer.headers, answer.data)
        if error is not None:
            raise error
        return answer.data

    async def serve(self, subject: str, reply: Reply, *, queue: str = "") -> Subscription:
        """Answer requests, at most ``HANDLERS_MAX`` at a time."""
        slots = asyncio.Semaphore(HANDLERS_MAX)
        in_work: set[asyncio.Task[None]] = set()

        async def answer(raw: Msg) -> None:
            message = message_of(raw)
            with incoming("serve", message.subject, message.headers):
                result = await attempt(reply(message), _log, f"handler of {message.subject}")
            if not isinstance(result, Failed):
                error = self._too_large(subject, result, outgoing(None))
                result = Failed(error) if error else result
            if raw.reply and isinstance(result, Failed):
                headers, text = failure(result.error)
                await self.publish(raw.reply, text, headers=headers)
            elif raw.reply and not isinstance(result, Failed):
                await self.publish(raw.reply, result)

        async def deliver(raw: Msg) -> None:
            await slots.acquire()
            task = asyncio.create_task(answer(raw), name=f"serve {raw.subject}")
            in_work.add(task)
            task.add_done_callback(in_work.discard)
            task.add_done_callback(lambda _: slots.release())

        return await self._listen(subject, queue, deliver, in_work)

    async def publish_durable(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store in the subject's stream and wait for the server's word.

        Raises:
            Unavailable: not stored for certain; send again with the same id.
            InvalidInput: no stream stores the subject, or it is too large for the server.
        """
        carried = {
            **outgoing(headers),
            "Nats-Msg-Id": message_id,
            "Nats-Expected-Stream": stream_of(subject).name,
        }
        if not self.connected:  # not into the buffer: the caller keeps it, in order
            raise Unavailable(f"{subject} was not stored: NATS is away")
        if error := self._too_large(subject, data, carried):
            raise error
        try:
            await self._client.jetstream(timeout=DURABLE_TIMEOUT_S).publish(
                subject, data, headers=carried
            )
        except (nats.errors.Error, nats.js.errors.Error, OSError) as error:
            raise Unavailable(f"{subject} was not stored for certain: {error!r}") from error

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> DurableConsumer:
        """Deliver stored messages in order, at least once, from where ``durable`` left off."""
        await self.wait_connected()
        consumer = DurableConsumer(self._client, subject, receive, durable=durable)
        await consumer.start()
        self._consumers.add(consumer)
        return consumer

    async def _request(
        self, subject: str, data: bytes, timeout_s: float, headers: Mapping[str, str]
    ) -> Msg:
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
                if error := self._too_large(subject, data, headers):
                    raise error
                return await self._client.request(
                    subject, data, timeout=timeout_s, headers=dict(headers) or None
                )
        except nats.errors.NoRespondersError:
            raise NoResponders(f"nobody serves {subject}") from None
        except (TimeoutError, nats.errors.TimeoutError):
            raise Unavailable(f"{subject} did not answer within {timeout_s} s") from None
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(f"{subject} could not be asked: {error!r}") from error

    def _too_large(
        self, subject: str, data: bytes, headers: Mapping[str, str]
    ) -> InvalidInput | None:
        """Return what is wrong with a message that the server would not take.

        The client looks at the data alone, and the server cuts the connection of whoever sends
        more, headers included: the same message would do so again and again.
        """
        size, limit = _size(data, headers), self._client.max_payload
        if size <= limit:
            return None
        return InvalidInput(
            f"{subject}: a message of {size} bytes is more than the {limit} that the NATS server "
            f"takes ({PAYLOAD_SETTING} in its configuration lets it take more)"
        )

    async def _listen(
        self,
        subject: str,
        queue: str,
        deliver: Callable[[Msg], Awaitable[None]],
        in_work: set[asyncio.Task[None]] | None = None,
    ) -> Subscription:
        await self._connected.wait()
        raw = await self._client.subscribe(subject, queue=queue, cb=deliver)
        subscribed = Subscribed(raw, in_work if in_work is not None else set())
        self._subscribed.add(subscribed)
        await self._settle()
        return subscribed

    async def _connect(self) -> None:
        times: dict[str, Any] = {  # annotated as int there, used as float
            "connect_timeout": CONNECT_TIMEOUT_S,
            "reconnect_time_wait": RECONNECT_WAIT_S,
        }
        await self._client.connect(
            self._url,
            **times,
            name=self._name,
            max_reconnect_attempts=-1,
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_OUTSTANDING_MAX,
            pending_size=PENDING_BYTES_MAX,
            flush_timeout=FLUSH_TIMEOUT_S,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_connected,
        )
        await self._on_connected()

    async def _on_connected(self) -> None:
        self._last_error = ""
        _log.info("connected to NATS as %s", self._name)
        if self._durable and self._client.max_payload < PAYLOAD_BYTES_NEEDED:
            _log.warning(
                "the NATS server takes messages of at most %d bytes, and large jobs need %d: say "
                "%s in its configuration",
                self._client.max_payload,
                PAYLOAD_BYTES_NEEDED,
                PAYLOAD_SETTING,
            )
        if self._setting_up is not None:
            self._setting_up.cancel()
        # Also after a reconnection: the server may have come back with an empty disk.
        self._setting_up = asyncio.create_task(self._set_up(), name="set up streams")
        self._connected.set()
        for consumer in self._consumers:
            consumer.reconnected()

    async def _set_up(self) -> None:
        if self._durable:
            await ensure_streams(self._client)
        self._ready.set()

    async def _on_disconnected(self) -> None:
        self._ready.clear()
        if not self._closing:
            self._note("connection to NATS lost: reconnecting")

    async def _on_error(self, error: Exception) -> None:
        self._note(f"NATS: {error!r}")

    def _note(self, text: str) -> None:
        """Log what is new; while the server is away the same error comes with every attempt."""
        if text != self._last_error:
            self._last_error = text
            _log.warning("%s", text)

    async def _settle(self) -> None:
        """Return when the server has taken what was sent; away is fine: it is sent again."""
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await asyncio.wait_for(self._client.flush(), FLUSH_TIMEOUT_S)

    async def _close(self) -> None:
        self._closing = True
        await asyncio.gather(
            *(consumer.close() for consumer in self._consumers),
            *(subscribed.close() for subscribed in self._subscribed),
        )
        tasks = [task for task in (self._connecting, self._setting_up) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.connected:
            await self._settle()
        if self._connected.is_set():
            await self._client.close()


def _size(data: bytes, headers: Mapping[str, str]) -> int:
    """Return what the server counts: the headers as they travel, and the data."""
    if not headers:
        return len(data)
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len(b"NATS/1.0\r\n") + lines + len(b"\r\n") + len(data)
