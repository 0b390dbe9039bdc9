"""Frames over blocking sockets, streams and the incremental decoder."""

import asyncio
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.agent import framing
from everstep.core.errors import CorruptData

MESSAGES = [{"kind": "hello", "rank": 3, "data": b"\0\xff"}, {"kind": "step", "loss": 1.5}]


def test_frames_cross_a_socket_until_it_closes():
    """Every frame arrives whole and in order; the end is None."""
    left, right = socket.socketpair()
    with left, right:
        for message in MESSAGES:
            framing.send(left, message)
        left.close()
        assert [framing.receive(right) for _ in MESSAGES] == MESSAGES
        assert framing.receive(right) is None


@given(cuts=st.lists(st.integers(0, 200), max_size=6))
def test_decoder_gives_the_same_frames_however_bytes_are_cut(cuts):
    """Cutting the stream anywhere changes nothing."""
    data = b"".join(framing.encode(message) for message in MESSAGES)
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    decoder = framing.FrameDecoder()
    got = []
    for start, end in itertools.pairwise(edges):
        got += decoder.feed(data[start:end])
    assert got == MESSAGES


async def read_all(data: bytes):
    """Read frames from a stream of ``data`` until it ends."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    found = []
    while (message := await framing.read(reader)) is not None:
        found.append(message)
    return found


async def test_stream_reads_frames_until_it_closes():
    """The asyncio reader sees what the blocking one sees."""
    data = b"".join(framing.encode(message) for message in MESSAGES)
    assert await read_all(data) == MESSAGES


@pytest.mark.parametrize("cut", [1, 4, 6])
async def test_end_in_the_middle_of_a_frame_is_a_reset(cut):
    """A peer that dies while it writes is told apart from one that closes."""
    data = framing.encode(MESSAGES[0])[:cut]
    with pytest.raises(ConnectionResetError):
        await read_all(data)
    left, right = socket.socketpair()
    with left, right:
        left.sendall(data)
        left.close()
        with pytest.raises(ConnectionResetError):
            framing.receive(right)


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\0\0\0\1\xc0", b"\0\0\0\1\x80", b"\0\0\0\2\xc1\xc1"],
    ids=["length", "not a map", "no kind", "not msgpack"],
)
async def test_garbled_bytes_are_refused(data):
    """Absurd lengths and bodies that are no map with a kind are corrupt data."""
    with pytest.raises(CorruptData):
        await read_all(data)
    with pytest.raises(CorruptData):
        framing.FrameDecoder().feed(data)


def test_message_without_kind_is_not_sent():
    """A frame that nobody could dispatch is refused where it is made."""
    with pytest.raises(ValueError, match="needs a kind"):
        framing.encode({"rank": 1})
