"""The rank's side of the channel to its host's agent.

Training never waits for this channel. Frames are queued and sent as far as the socket takes them,
the socket is looked at once a step, and when the agent is gone the rank goes on, keeps a bounded
number of reports, and connects again at the next step to whoever listens at the same path by then.
Only two moments block: waiting for the restore plan at the start, and the last words.

The thread that finishes snapshots says steps too, so a lock is held while frames are queued, sent
and received; never while waiting.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from everstep.agent import framing
from everstep.core.errors import CorruptData, Unavailable
from everstep.core.system import Clock

# An hour of one-second steps: an agent is back in seconds; beyond it, old metrics are worth less
# than the rank's memory.
UNSENT_FRAMES_MAX: Final = 4096
_RECEIVE_BYTES: Final = 65536
_RETRY_S: Final = 0.05  # while blocked; an agent that restarts takes longer anyway


class AgentChannel:
    """Frames to and from the agent at ``path``; with no path, into nothing.

    Args:
        path: the agent's socket, None for bare runs.
        hello: identifies the rank; sent first on every connection.
        clock: for the deadlines of the two blocking moments.
    """

    def __init__(self, path: Path | None, hello: Mapping[str, Any], clock: Clock) -> None:
        self._path = path
        self._hello: dict[str, Any] = {"kind": "hello", **hello}
        self._clock = clock
        self._socket: socket.socket | None = None
        self._decoder = framing.FrameDecoder()
        self._unsent: deque[bytes] = deque()
        self._partly_sent = 0  # bytes of the first frame that are out
        self._greeting = b""  # what is not out yet of the connection's hello
        self._arrived: deque[framing.Frame] = deque()
        self._lock = threading.Lock()
        self.dropped_frames = 0

    @property
    def is_bare(self) -> bool:
        """Whether there is no agent to talk to."""
        return self._path is None

    def connect(self) -> None:
        """Try to connect and say hello; what the agent answers is kept for whoever asks."""
        if self._path is not None:
            with self._lock:
                self._advance()

    def say(self, kind: str, **fields: Any) -> None:
        """Queue a frame and send what the socket takes now; the oldest go when too many wait."""
        if self._path is None:
            return
        with self._lock:
            if len(self._unsent) >= UNSENT_FRAMES_MAX:
                # The first may be partly out, and the stream must not break inside a frame.
                del self._unsent[1 if self._partly_sent else 0]
                self.dropped_frames += 1
            self._unsent.append(framing.encode({"kind": kind, **fields}))
            self._advance()

    def poll(self) -> list[framing.Frame]:
        """Return the frames that have arrived; never blocks."""
        if self._path is None:
            return []
        with self._lock:
            self._advance()
            frames = list(self._arrived)
            self._arrived.clear()
        return frames

    def remember(self, **fields: Any) -> None:
        """Add to what later hellos say, e.g. the newest step."""
        with self._lock:
            self._hello.update(fields)

    def wait_for(self, kinds: frozenset[str], *, timeout_s: float) -> framing.Frame:
        """Block until a frame of one of ``kinds`` arrives; other frames stay for ``poll``.

        Raises:
            Unavailable: none came in time.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_s * 1e3
        while True:
            with self._lock:
                self._advance()
                for frame in self._arrived:
                    if frame["kind"] in kinds:
                        self._arrived.remove(frame)
                        return frame
            if self._clock.monotonic_ms() > deadline_ms:
                wanted = " or ".join(sorted(kinds))
                raise Unavailable(f"no {wanted} from the agent at {self._path} in {timeout_s} s")
            self._rest()

    def last_words(self, kind: str, *, timeout_s: float, **fields: Any) -> bool:
        """Say a frame and block until everything is out; False when it could not be in time."""
        if self._path is None:
            return True
        self.say(kind, **fields)
        deadline_ms = self._clock.monotonic_ms() + timeout_s * 1e3
        while self._unsent:
            if self._clock.monotonic_ms() > deadline_ms:
                return False
            self._rest()
            with self._lock:
                self._advance()
        return True

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _advance(self) -> None:
        """Connect, send and receive as far as that goes without blocking."""
        if self._socket is None and not self._connect():
            return
        assert self._socket is not None
        try:
            with contextlib.suppress(BlockingIOError):
                self._send()
            while data := self._socket.recv(_RECEIVE_BYTES):
                self._arrived.extend(self._decoder.feed(data))
        except BlockingIOError:
            return
        except (OSError, CorruptData):
            pass
        self._disconnected()  # it closed, broke or talks nonsense: start anew

    def _connect(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))  # local: connects or fails at once
        except OSError:
            connection.close()
            return False
        self._socket = connection
        self._greeting = framing.encode(self._hello)
        return True

    def _disconnected(self) -> None:
        self.close()
        self._decoder = framing.FrameDecoder()
        self._partly_sent = 0  # the next connection begins with whole frames

    def _send(self) -> None:
        assert self._socket is not None
        while self._greeting:
            self._greeting = self._greeting[self._socket.send(self._greeting) :]
        while self._unsent:
            first = self._unsent[0]
            self._partly_sent += self._socket.send(memoryview(first)[self._partly_sent :])
            if self._partly_sent == len(first):
                self._unsent.popleft()
                self._partly_sent = 0

    def _rest(self) -> None:
        """Sleep until the socket has something to say, or a moment."""
        readable = [self._socket] if self._socket is not None else []
        with contextlib.suppress(OSError):
            select.select(readable, [], [], _RETRY_S)
