"""Length-prefixed msgpack frames: what agent, fork server, ranks and peer agents speak locally.

A frame is a 4-byte big-endian length and a msgpack map with the key ``kind``. Decoding never builds
anything but maps, lists, strings, numbers and bytes, so a frame from a confused process can be
wrong but not dangerous. Rejected: JSON lines (no bytes) and pickle (runs code).

Three readers of the same format: blocking sockets, asyncio streams, and ``FrameDecoder`` for
non-blocking sockets that are polled.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from everstep.core.errors import CorruptData

Frame = dict[str, Any]

_LENGTH: Final = struct.Struct(">I")
# Frames carry tracebacks and holdings, a few kB; a larger length means that the stream is garbled.
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(dict[str, Any])


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the frame of ``message``.

    Raises:
        ValueError: it has no ``kind`` or is larger than ``FRAME_BYTES_MAX``.
    """
    if "kind" not in message:
        raise ValueError(f"a frame needs a kind; got the keys {sorted(message)}")
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(
            f"frame {message['kind']!r} has {len(body)} bytes, more than {FRAME_BYTES_MAX}"
        )
    return _LENGTH.pack(len(body)) + body


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Write one frame to a blocking socket."""
    connection.sendall(encode(message))


def receive(connection: socket.socket) -> Frame | None:
    """Read one frame from a blocking socket; None when the peer closed between frames.

    Raises:
        ConnectionResetError: the peer closed in the middle of a frame.
        CorruptData: the bytes are not a frame.
    """
    head = _receive_exactly(connection, _LENGTH.size, at_start=True)
    if head is None:
        return None
    body = _receive_exactly(connection, _checked_length(head), at_start=False)
    assert body is not None
    return _decode(body)


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """Read one frame from a stream; None when the peer closed between frames.

    Raises:
        ConnectionResetError: the peer closed in the middle of a frame.
        CorruptData: the bytes are not a frame.
    """
    head = b""
    try:
        head = await reader.readexactly(_LENGTH.size)
        body = await reader.readexactly(_checked_length(head))
    except asyncio.IncompleteReadError as error:
        if not head and not error.partial:
            return None
        raise ConnectionResetError("the peer closed in the middle of a frame") from None
    return _decode(body)


def write(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    """Queue one frame on a stream; ``await writer.drain()`` is the caller's."""
    writer.write(encode(message))


class FrameDecoder:
    """Cuts frames out of bytes as they come in; for non-blocking sockets."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add ``data`` and return the frames that are now complete, in order.

        Raises:
            CorruptData: the bytes are not a frame; the connection is of no more use.
        """
        self._pending += data
        frames: list[Frame] = []
        while len(self._pending) >= _LENGTH.size:
            end = _LENGTH.size + _checked_length(self._pending)
            if len(self._pending) < end:
                break
            frames.append(_decode(bytes(self._pending[_LENGTH.size : end])))
            del self._pending[:end]
        return frames


def _checked_length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > FRAME_BYTES_MAX:
        raise CorruptData(
            f"a frame claims {length} bytes, more than {FRAME_BYTES_MAX}: the stream is garbled"
        )
    return int(length)


def _decode(body: bytes) -> Frame:
    try:
        message = _decoder.decode(body)
    except msgspec.DecodeError as error:  # ValidationError is one of them
        raise CorruptData(f"a frame of {len(body)} bytes is not a msgpack map: {error}") from None
    if "kind" not in message:
        raise CorruptData(f"a frame has no kind; its keys are {sorted(message)}")
    return message


def _receive_exactly(connection: socket.socket, size: int, *, at_start: bool) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            if at_start and not data:
                return None
            raise ConnectionResetError("the peer closed in the middle of a frame")
        data += chunk
    return bytes(data)
