"""What the shell needs from the outside, as protocols.

Each has a real and an in-memory adapter, and one contract suite under ``tests/contract`` that both
pass. The simulator runs on the in-memory ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event about to be stored. ``event_id`` makes a retried append recognisable."""

    event_id: str
    type: str
    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """A committed event. ``position`` grows in commit order within one service's store."""

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    data: Mapping[str, Any]
    metadata: Mapping[str, Any]
    recorded_at_ms: int


class Projection(Protocol):
    """Keeps read tables. Called inside the transaction that appends, in version order."""

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        """Update the tables; ``transaction`` is the adapter's own (an SQLAlchemy connection)."""
        ...


class EventStore(Protocol):
    """Append-only streams with optimistic versions."""

    async def load(self, stream: str, *, after_version: int = 0) -> list[StoredEvent]:
        """Return the stream's events with a version above ``after_version``, in order."""
        ...

    async def append(
        self,
        stream: str,
        expected_version: int,
        events: Sequence[NewEvent],
        *,
        consumed: Consumed | None = None,
    ) -> list[StoredEvent]:
        """Append atomically with the projections and the consumer's position.

        ``events`` may be empty when only ``consumed`` is to be recorded.

        Raises:
            Conflict: the stream is not at ``expected_version`` (0: does not exist).
        """
        ...

    async def read_all(self, *, after_position: int, limit: int) -> list[StoredEvent]:
        """Return committed events in position order; never skips one that commits late."""
        ...

    async def streams(self, *, prefix: str = "") -> list[str]:
        """Return the names of existing streams, sorted."""
        ...

    async def consumed_position(self, consumer: str, source: str) -> int:
        """Return the last handled position of ``source`` events, 0 at first."""
        ...

    async def cursor(self, name: str) -> int:
        """Return a named reader's position (the outbox's), 0 at first."""
        ...

    async def advance_cursor(self, name: str, position: int) -> None:
        """Move a named cursor forward; never back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """That ``consumer`` has handled ``source``'s event at ``position``; commits with the effect."""

    consumer: str
    source: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as a subscriber sees it."""

    subject: str
    data: bytes
    headers: Mapping[str, str]


class Subscription(Protocol):
    """A running subscription."""

    async def close(self) -> None:
        """Stop delivering; what is in work is finished."""
        ...


Reply = Callable[[Message], Awaitable[bytes]]
Receive = Callable[[Message], Awaitable[None]]


class Bus(Protocol):
    """Publish/subscribe, request/reply and durable streams."""

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send to whoever listens now; lost when nobody does."""
        ...

    async def subscribe(self, subject: str, receive: Receive, *, queue: str = "") -> Subscription:
        """Deliver each message to ``receive``, one after the other."""
        ...

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Ask and wait for one answer.

        Raises:
            NoResponders: nobody serves the subject (known at once).
            Unavailable: no answer within ``timeout_s``.
        """
        ...

    async def serve(self, subject: str, reply: Reply, *, queue: str = "") -> Subscription:
        """Answer requests, concurrently."""
        ...

    async def publish_durable(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Store in the subject's stream; a repeated ``message_id`` is stored once.

        Raises:
            Unavailable: not stored for certain; send again with the same id.
            InvalidInput: no stream stores the subject, or the server takes no so large message.
        """
        ...

    async def consume(self, subject: str, receive: Receive, *, durable: str) -> Subscription:
        """Deliver stored messages in order, at least once, from where ``durable`` left off.

        A message is acknowledged when ``receive`` returns; when it raises, it is delivered again
        after a pause, before any later one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """A stored object."""

    key: str
    size_bytes: int


class ObjectStore(Protocol):
    """Durable bytes under keys."""

    async def put_file(self, key: str, path: str, *, size_bytes: int, offset: int = 0) -> None:
        """Store part of a file under ``key``, replacing what is there."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, replacing what is there."""
        ...

    async def get(self, key: str) -> bytes:
        """Return the whole object.

        Raises:
            NotFoundError: no such key.
        """
        ...

    def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream the object. Raises NotFoundError as ``get`` does."""
        ...

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """Return the objects whose key starts with ``prefix``, sorted by key."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; already gone is fine."""
        ...


class Pace(Protocol):
    """How fast a file is sent, asked from the thread that sends it."""

    @property
    def chunk_bytes(self) -> int:
        """How much to send at once, at most."""
        ...

    def wait(self, size_bytes: int) -> None:
        """Block until so many bytes may go; what it raises ends the upload."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialUpload:
    """An upload by parts that has begun: its key has no object until it is completed."""

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A part as the store has it; ``number`` counts from 1, ``etag`` is the store's word for it."""

    number: int
    size_bytes: int
    etag: str


class MultipartStore(ObjectStore, Protocol):
    """An object store that takes large files by parts, in any order and over any time."""

    async def put_file(
        self, key: str, path: str, *, size_bytes: int, offset: int = 0, pace: Pace | None = None
    ) -> None:
        """Store part of a file under ``key`` in one piece, replacing what is there."""
        ...

    async def begin_upload(self, key: str) -> PartialUpload:
        """Begin an upload by parts."""
        ...

    async def put_part(
        self,
        upload: PartialUpload,
        number: int,
        path: str,
        *,
        size_bytes: int,
        offset: int,
        pace: Pace | None = None,
    ) -> StoredPart:
        """Store one part. Raises NotFoundError: no such upload."""
        ...

    async def parts(self, upload: PartialUpload) -> Sequence[StoredPart]:
        """Return the stored parts by number, perhaps several of one that was stored again.

        Raises:
            NotFoundError: no such upload.
        """
        ...

    async def complete_upload(self, upload: PartialUpload, parts: Sequence[StoredPart]) -> None:
        """Make these parts the object, in this order.

        Raises:
            NotFoundError: the upload or a part is gone.
        """
        ...

    async def abort_upload(self, upload: PartialUpload) -> None:
        """Drop the upload and its parts; already gone is fine."""
        ...

    async def unfinished_uploads(self, prefix: str) -> Sequence[PartialUpload]:
        """Return what has begun and not ended under a prefix, sorted by key and id."""
        ...
