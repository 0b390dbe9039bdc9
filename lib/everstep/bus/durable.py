"""Durable streams on JetStream: their creation, and the pull loop of one durable consumer.

One message at a time (``max_ack_pending`` 1), because order is what consumers rely on: a message is
acknowledged when its effect has been committed, and only then is the next one handed out, to
whichever instance asks. A handler that fails is tried again here, before any later message; a
process that dies is noticed after ``ACK_WAIT_S`` and its message goes to the next one that asks.

Pulls, not pushes: after a reconnection the loop simply asks again, and the answer "no such
consumer" tells it to create one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from everstep.bus.guard import Failed, attempt
from everstep.bus.streams import DUPLICATE_WINDOW_S, MAX_AGE_S, STREAMS, stream_of
from everstep.bus.subscribed import message_of
from everstep.bus.tracing import incoming
from everstep.core.ports import Receive

# How long a killed instance's message waits for the next one: recovery waits with it. Handlers that
# take longer say so (below), so it may be short; a duplicate does no harm.
ACK_WAIT_S: Final = 2.0
STILL_WORKING_S: Final = 0.5
PULL_EXPIRES_S: Final = 20.0  # an unanswered pull is repeated; also the check that all is well
RETRY_MIN_S: Final = 0.05
RETRY_MAX_S: Final = 5.0  # a consumer that fails for long is seen in its lag, not in a busy loop
SETUP_PAUSE_S: Final = 0.5
_NANOSECONDS: Final = 1_000_000_000

_log = logging.getLogger(__name__)


async def ensure_streams(client: Client) -> None:
    """Create the streams that are missing, trying until it succeeds.

    One that exists is left as it is: whoever runs the servers may have given it replicas.
    """
    manager = client.jsm()
    for spec in STREAMS:
        while True:
            try:
                try:
                    await manager.stream_info(spec.name)
                except nats.js.errors.NotFoundError:
                    await manager.add_stream(
                        StreamConfig(
                            name=spec.name,
                            subjects=[spec.subject],
                            storage=StorageType.FILE,
                            max_age=MAX_AGE_S,
                            duplicate_window=DUPLICATE_WINDOW_S,
                        )
                    )
                break
            except (nats.errors.Error, nats.js.errors.Error) as error:
                _log.warning("stream %s cannot be set up yet: %r", spec.name, error)
                await asyncio.sleep(SETUP_PAUSE_S)


class DurableConsumer:
    """A running ``consume``; also its handle."""

    def __init__(self, client: Client, subject: str, receive: Receive, *, durable: str) -> None:
        self._client = client
        self._subject = subject
        self._stream = stream_of(subject).name
        self._receive = receive
        self._durable = durable
        self._inbox: NatsSubscription | None = None
        self._arrived: asyncio.Queue[Msg | None] = asyncio.Queue()  # None: look up
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.pending = 0  # stored messages behind the newest one that we were given

    async def start(self) -> None:
        """Create the consumer and begin to ask for messages."""
        await self._ensure()
        self._inbox = await self._client.subscribe(self._client.new_inbox(), cb=self._arrived.put)
        self._task = asyncio.create_task(self._pull(), name=f"consume {self._durable}")

    def reconnected(self) -> None:
        """Ask again: the pull that was under way went to the old connection."""
        self._arrived.put_nowait(None)

    async def close(self) -> None:
        """Stop delivering; what is in work is finished."""
        self._closing.set()
        self._arrived.put_nowait(None)
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait({self._task})
        if self._inbox is not None and not self._client.is_closed:
            with contextlib.suppress(nats.errors.Error):
                await self._inbox.unsubscribe()
            self._inbox = None

    async def _pull(self) -> None:
        while not self._closing.is_set():
            if self._arrived.empty():
                await self._ask()
            try:
                raw = await asyncio.wait_for(self._arrived.get(), PULL_EXPIRES_S + 1)
            except TimeoutError:
                continue
            if raw is None or self._closing.is_set():
                continue
            status = (raw.headers or {}).get("Status")
            if status is None:
                await self._handle(raw)
            elif status in ("404", "409", "503"):  # no consumer or no JetStream (yet, any more)
                await self._pause(SETUP_PAUSE_S)
                await self._ensure()

    async def _ask(self) -> None:
        """Ask for one message; lost while NATS is away, and repeated then."""
        assert self._inbox is not None
        pull = {"batch": 1, "expires": int(PULL_EXPIRES_S * _NANOSECONDS)}
        try:
            await self._client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}",
                json.dumps(pull).encode(),
                reply=self._inbox.subject,
            )
        except nats.errors.Error as error:
            _log.debug("%s: %r", self._durable, error)

    async def _handle(self, raw: Msg) -> None:
        """Hand a message over until it is done with, then acknowledge it."""
        message = message_of(raw)
        self.pending = raw.metadata.num_pending
        working = asyncio.create_task(self._say_working(raw))
        pause_s = RETRY_MIN_S
        try:
            while not self._closing.is_set():
                with incoming("consume", message.subject, message.headers):
                    what = f"{self._durable}: consumer of {message.subject}"
                    result = await attempt(self._receive(message), _log, what)
                if not isinstance(result, Failed):
                    await self._acknowledge(raw)
                    return
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, RETRY_MAX_S)
        finally:
            working.cancel()

    async def _acknowledge(self, raw: Msg) -> None:
        try:
            await raw.ack()
        except nats.errors.Error as error:  # it comes again, and is recognised
            _log.info("%s: not acknowledged: %r", self._durable, error)

    async def _say_working(self, raw: Msg) -> None:
        while True:
            await asyncio.sleep(STILL_WORKING_S)
            try:
                await raw.in_progress()
            except nats.errors.Error as error:
                _log.debug("%s: %r", self._durable, error)

    async def _ensure(self) -> None:
        config = ConsumerConfig(
            durable_name=self._durable,
            filter_subject=self._subject,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_S,
            max_ack_pending=1,
            max_deliver=-1,
        )
        while not self._closing.is_set():
            try:
                await self._client.jsm().add_consumer(self._stream, config)
            except (nats.errors.Error, nats.js.errors.Error) as error:
                _log.warning("consumer %s cannot be set up yet: %r", self._durable, error)
                await self._pause(SETUP_PAUSE_S)
            else:
                return

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return
