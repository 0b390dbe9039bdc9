"""What agents say to one another over TCP, from the asking side.

::

    push {job_id, generation, rank, step, bytes, header_checksum}
        -> go, then the slot's bytes -> ack {step}
        -> ack {step}                       it is there already
        -> refused {why, detail}            stale_generation, no_space, bad_checksum
    pull {job_id, rank, step, generation}
        -> slot {bytes}, then the slot's bytes
        -> absent

Blocking sockets in threads, because the bytes go from the slot file to the socket inside the
kernel (sendfile) and a thread that waits there costs the event loop nothing.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from everstep.agent import framing
from everstep.core.errors import NotFoundError, RefusedError, Unavailable
from everstep.memory.receive import SlotReceiver
from everstep.memory.slot import PREAMBLE_BYTES, Preamble

CONNECT_S_MAX: Final = 2.0  # a host in the same cluster answers in milliseconds or is away
PROGRESS_S_MAX: Final = 10.0  # without a byte moved for so long, the other side hangs
CHUNK_BYTES: Final = 1 << 20  # large against a system call, small against a cache


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

    def push(self, head: dict[str, Any], path: Path, preamble: Preamble) -> None:
        """Send a snapshot; returns when the peer holds it, checked.

        Args:
            head: ``job_id, generation, rank``.
            path: the slot file, which must stay as it is meanwhile.
            preamble: of that file.

        Raises:
            RefusedError: the peer does not take it; ``why`` says why.
            Unavailable: the connection broke; it is of no more use.
        """
        message = {
            "kind": "push",
            **head,
            "step": preamble.step,
            "bytes": preamble.slot_bytes,
            "header_checksum": preamble.header_checksum,
        }
        with self._breaking():
            framing.send(self._socket, message)
            answer = self._answer()
            if answer["kind"] == "go":
                with path.open("rb") as file:
                    self._socket.sendfile(file, 0, preamble.slot_bytes)
                answer = self._answer()
        if answer["kind"] == "refused":
            raise RefusedError(answer["why"], f"peer {self._where}: {answer['detail']}")

    def ask(self, job_id: str, rank: int, step: int, generation: int = 0) -> int:
        """Ask for a snapshot (of any generation if 0); returns the bytes to ``receive``.

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
        return int(answer["bytes"])

    def receive(self, receiver: SlotReceiver, size_bytes: int) -> None:
        """Take the bytes that ``ask`` announced. Raises Unavailable, CorruptData."""
        with self._breaking():
            receive_slot(self._socket, receiver, size_bytes)

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
        try:
            yield
        except OSError as error:
            raise Unavailable(f"peer {self._where}: {error}") from None


def prepare(connection: socket.socket) -> None:
    """Set what both sides want: small frames at once, no endless waits."""
    connection.settimeout(PROGRESS_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def shut(connection: socket.socket) -> None:
    """Wake a thread that waits on the connection; it gets an error or the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def receive_slot(connection: socket.socket, receiver: SlotReceiver, size_bytes: int) -> None:
    """Read a slot's bytes from a socket.

    Raises:
        OSError: the connection broke, or ended early.
        CorruptData: what came does not fit.
    """
    head = bytearray()
    while len(head) < min(PREAMBLE_BYTES, size_bytes):
        chunk = connection.recv(PREAMBLE_BYTES - len(head))
        if not chunk:
            raise ConnectionResetError(f"the sender ended {size_bytes - len(head)} bytes early")
        head += chunk
    receiver.write(bytes(head))
    left = size_bytes - len(head)
    while left:
        with receiver.space(CHUNK_BYTES) as space:  # straight into the slot file
            count = connection.recv_into(space)
        if not count:
            raise ConnectionResetError(f"the sender ended {left} bytes early")
        receiver.advance(count)
        left -= count
