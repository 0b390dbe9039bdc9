"""What agents say to one another over TCP, from the asking side.

::

    push {job_id, generation, rank, host_id, step, bytes, header_bytes, header_checksum}
        -> go, then the slot -> ack {step}
        -> ack {step}                       it is there already
        -> refused {why, detail}            stale_generation, no_space, bad_checksum, wrong_host
    pull {job_id, rank, step, generation}
        -> slot {bytes, header_bytes}, then the slot
        -> absent
    echo {data, checksum}                   links.py asks
        -> echo {data, checksum}

A slot travels as preamble, header, payload: the header lies last in the file, but whoever receives
needs its checksums first, to check each tensor while it comes.

Blocking sockets in threads, because the bytes go from the slot file to the socket inside the
kernel (sendfile) and a thread that waits there costs the event loop nothing. Limits are the
kernel's too (``limit_waits``): Python's own make a socket non-blocking, which costs a poll for
every call and brings what comes in small pieces.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from everstep.agent import framing
from everstep.core.errors import CorruptData, NotFoundError, RefusedError, Unavailable
from everstep.memory.receive import StreamReceiver
from everstep.memory.slot import PREAMBLE_BYTES, Preamble

CONNECT_S_MAX: Final = 2.0  # a host in the same cluster answers in milliseconds or is away
PROGRESS_S_MAX: Final = 10.0  # without a byte moved for so long, the other side hangs
# Large against a system call, small enough that what came is still in the cache when it is checked:
# of 64 kB to 1 MB the cheapest at 50 and 390 MB, by processor time.
CHUNK_BYTES: Final = 512 << 10
SENDFILE_BYTES_MAX: Final = 1 << 30  # in one call; Linux takes 2 GB at most
_TIMEVAL: Final = struct.Struct("@ll")


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What is about to come."""

    bytes: int
    header_bytes: int


class PeerConnection:
    """A connection to another host's snapshot server.

    Raises:
        Unavailable: nobody answers there.
    """

    def __init__(self, address: str, port: int) -> None:
        self._where = f"{address}:{port}"
        try:
            self._socket = socket.create_connection((address, port), timeout=CONNECT_S_MAX)
        except OSError as error:
            raise Unavailable(f"peer {self._where}: {error}") from None
        prepare(self._socket)

    def push(
        self,
        head: dict[str, Any],
        path: Path,
        preamble: Preamble,
        taken: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a snapshot; returns when the peer holds it, checked.

        Args:
            head: ``job_id, generation, rank``, and the ``host_id`` of who is to keep it.
            path: the slot file, which must stay as it is meanwhile.
            preamble: of that file.
            taken: called when the peer has room and begins to receive.

        Raises:
            RefusedError: the peer does not take it; ``why`` says why.
            Unavailable: the connection broke; it is of no more use.
        """
        message = {
            "kind": "push",
            **head,
            "step": preamble.step,
            "bytes": preamble.slot_bytes,
            "header_bytes": preamble.header_bytes,
            "header_checksum": preamble.header_checksum,
        }
        with self._breaking():
            framing.send(self._socket, message)
            answer = self._answer()
            if answer["kind"] == "go":
                taken()
                with path.open("rb", buffering=0) as file:
                    send_slot(self._socket, file, preamble)
                answer = self._answer()
        if answer["kind"] == "refused":
            raise RefusedError(answer["why"], f"peer {self._where}: {answer['detail']}")

    def ask(self, job_id: str, rank: int, step: int, generation: int = 0) -> Announced:
        """Ask for a snapshot (of any generation if 0); returns what to ``receive``.

        Raises:
            NotFoundError: the peer does not hold it.
            Unavailable: the connection broke.
        """
        message = {
            "kind": "pull",
            "job_id": job_id,
            "rank": rank,
            "step": step,
            "generation": generation,
        }
        with self._breaking():
            framing.send(self._socket, message)
            answer = self._answer()
        if answer["kind"] != "slot":
            raise NotFoundError(f"peer {self._where} holds no step {step} of rank {rank}")
        return Announced(bytes=int(answer["bytes"]), header_bytes=int(answer["header_bytes"]))

    def receive(self, receiver: StreamReceiver) -> None:
        """Take what ``ask`` announced. Raises Unavailable."""
        with self._breaking():
            receive_slot(self._socket, receiver)

    def cut_off(self) -> None:
        """End whatever another thread is doing with this connection."""
        shut(self._socket)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self) -> framing.Frame:
        answer = framing.receive(self._socket)
        if answer is None:
            raise ConnectionResetError("closed without an answer")
        return answer

    @contextlib.contextmanager
    def _breaking(self) -> Any:
        # Whoever speaks otherwise is no peer: its port may be somebody else's meanwhile.
        try:
            yield
        except (OSError, CorruptData) as error:
            raise Unavailable(f"peer {self._where}: {why_of(error)}") from None


def prepare(connection: socket.socket) -> None:
    """Set what both sides want: small frames at once, no endless waits."""
    connection.settimeout(None)
    limit_waits(connection, PROGRESS_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def limit_waits(connection: socket.socket, seconds: float) -> None:
    """Let calls of a blocking socket that move nothing for so long fail (BlockingIOError)."""
    whole = int(seconds)
    limit = _TIMEVAL.pack(whole, round((seconds - whole) * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def why_of(error: Exception) -> str:
    """Say why a connection ended."""
    if isinstance(error, BlockingIOError):
        return "the other side hangs: nothing has moved for as long as it may"
    return str(error)


def shut(connection: socket.socket) -> None:
    """Wake a thread that waits on the connection; it gets an error or the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def send_slot(connection: socket.socket, file: BinaryIO, preamble: Preamble) -> None:
    """Send a slot file's preamble, header and payload.

    Raises:
        OSError: the connection broke.
    """
    header = os.pread(file.fileno(), preamble.header_bytes, preamble.header_offset)
    connection.sendall(preamble.pack() + header)
    begin, end = PREAMBLE_BYTES, preamble.header_offset
    while begin < end:
        count = min(end - begin, SENDFILE_BYTES_MAX)
        sent = os.sendfile(connection.fileno(), file.fileno(), begin, count)
        if not sent:
            raise ConnectionAbortedError(f"the slot file ends {end - begin} bytes early")
        begin += sent


def receive_slot(connection: socket.socket, receiver: StreamReceiver) -> None:
    """Read a slot from a socket, straight into its file.

    Raises:
        OSError: the connection broke, or ended early.
    """
    head = bytearray(receiver.head_bytes)
    with memoryview(head) as rest:
        received = 0
        while received < len(head):
            count = connection.recv_into(rest[received:], 0, socket.MSG_WAITALL)
            if not count:
                raise ConnectionResetError("the sender ended within the header")
            received += count
    receiver.take_head(bytes(head))
    while receiver.left_bytes:
        with receiver.space(CHUNK_BYTES) as space:
            count = connection.recv_into(space, 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionResetError(f"the sender ended {receiver.left_bytes} bytes early")
        receiver.advance(count)
