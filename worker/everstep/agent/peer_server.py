"""Serves this host's memory to its peers: takes their snapshots, gives them theirs.

A thread a connection, because a connection is one rank of a peer host and lives as long as its
generation. The slot is chosen here and not by the sender, so that after a move the newest copy is
never the one that is overwritten (``store.choose_slot``).
"""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass
from typing import Final

import msgspec

from everstep.agent import framing, peer_protocol
from everstep.agent.links import echo_of
from everstep.agent.store import HostMemory, held_in, slot_among
from everstep.core.errors import CorruptData, RefusedError, Unavailable
from everstep.core.ids import is_valid_id
from everstep.memory.receive import StreamReceiver

log = logging.getLogger(__name__)

# One for each rank whose copies lie here, and pulls: far above any placement.
CONNECTIONS_MAX: Final = 256
IDLE_S_MAX: Final = 3_600.0  # between two snapshots; a longer silence is a dead peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A peer offers a snapshot."""

    job_id: str
    generation: int
    rank: int
    step: int
    bytes: int
    header_bytes: int
    header_checksum: int
    host_id: str = ""  # for whom; "": whoever answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A peer asks for one."""

    job_id: str
    rank: int
    step: int
    generation: int = 0  # that wrote it; 0: any


class PeerServer:
    """The listener and its connections; without a ``host_id`` it takes what is for any host."""

    def __init__(self, memory: HostMemory, host_id: str = "") -> None:
        self._memory = memory
        self._host_id = host_id
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def start(self, address: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be bound.
        """
        self._listener = socket.create_server((address, port), backlog=CONNECTIONS_MAX)
        threading.Thread(
            target=self._accept, args=(self._listener,), name="peer-accept", daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._listener is not None:
            peer_protocol.shut(self._listener)
            self._listener.close()
        with self._lock:
            for connection in self._connections:
                peer_protocol.shut(connection)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            with self._lock:
                full = len(self._connections) >= CONNECTIONS_MAX
                if not full:
                    self._connections.add(connection)
            if full:
                log.warning("peer connection refused: %d are open", CONNECTIONS_MAX)
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="peer", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            peer_protocol.prepare(connection)
            while True:
                peer_protocol.limit_waits(connection, IDLE_S_MAX)
                frame = framing.receive(connection)
                peer_protocol.limit_waits(connection, peer_protocol.PROGRESS_S_MAX)
                if frame is None:
                    return
                self._handle(connection, frame)
        except (OSError, CorruptData, msgspec.ValidationError) as error:
            log.info("peer connection ended: %s", peer_protocol.why_of(error))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _handle(self, connection: socket.socket, frame: framing.Frame) -> None:
        match frame["kind"]:
            case "push":
                push = msgspec.convert(frame, Push)
                try:
                    self._take(connection, push)
                except (RefusedError, Unavailable, CorruptData) as error:
                    why = _why(error)
                    log.warning(
                        "refused step %d of rank %d of job %s (generation %d): %s",
                        push.step, push.rank, push.job_id, push.generation, error,
                    )  # fmt: skip
                    answer = {"kind": "refused", "why": why, "detail": str(error)}
                    framing.send(connection, answer)
            case "pull":
                self._give(connection, msgspec.convert(frame, Pull))
            case "echo":
                framing.send(connection, echo_of(frame))
            case unknown:
                raise CorruptData(f"unknown peer request {unknown!r}")

    def _take(self, connection: socket.socket, push: Push) -> None:
        memory = self._memory
        _check_id(push.job_id)
        if self._host_id and push.host_id not in ("", self._host_id):
            raise RefusedError(
                "wrong_host", f"{self._host_id} is here now, the copy is for {push.host_id}"
            )

        def cut_off() -> None:
            peer_protocol.shut(connection)

        directory = memory.directory(push.job_id, push.rank, own=False)
        with memory.writing(push.job_id, push.generation, directory, cut_off):
            held = held_in(directory, push.rank, own=False)
            offered = (push.step, push.header_checksum)
            if offered not in {(one.step, one.preamble.header_checksum) for one in held}:
                path = slot_among(held, directory, push.step)
                memory.require_room(path, push.bytes)
                with memory.slot_file(path, push.bytes) as file:
                    receiver = StreamReceiver(file, push.bytes, push.header_bytes)
                    framing.send(connection, {"kind": "go"})
                    peer_protocol.receive_slot(connection, receiver)
                    receiver.commit(job_id=push.job_id, rank=push.rank, step=push.step)
        framing.send(connection, {"kind": "ack", "step": push.step})

    def _give(self, connection: socket.socket, pull: Pull) -> None:
        _check_id(pull.job_id)
        held = None
        for own in (True, False):
            held = held or self._memory.find(
                pull.job_id, pull.rank, pull.step, own=own, generation=pull.generation
            )
        if held is None:
            framing.send(connection, {"kind": "absent"})
            return
        preamble = held.preamble
        sizes = {"bytes": preamble.slot_bytes, "header_bytes": preamble.header_bytes}
        with held.path.open("rb", buffering=0) as file:
            framing.send(connection, {"kind": "slot", **sizes})
            peer_protocol.send_slot(connection, file, preamble)


def _check_id(job_id: str) -> None:
    """Refuse what must not become part of a path."""
    if not is_valid_id(job_id):
        raise CorruptData(f"{job_id!r} is not a job id")


def _why(error: Exception) -> str:
    if isinstance(error, RefusedError):
        return error.why
    return "bad_checksum" if isinstance(error, CorruptData) else "no_space"
