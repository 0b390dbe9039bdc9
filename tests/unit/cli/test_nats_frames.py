"""A client's protocol is cut where it says, however the pieces come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.errors import CorruptData
from everstep.local.nats_frames import LINE_BYTES_MAX, FrameCutter

FRAMES = {
    b'CONNECT {"verbose":false,"user":"u"}\r\n': "",
    b"PING\r\n": "",
    b"SUB a.b.> 1\r\n": "",
    b"PUB a.b 5\r\nhello\r\n": "a.b",
    b"PUB a.b _INBOX.1 0\r\n\r\n": "a.b",
    b"pub c 9\r\nPUB x 3\r\n\r\n": "c",  # a payload that looks like a message
    b"HPUB d 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n": "d",
    b"HPUB d reply 12 12\r\nNATS/1.0\r\n\r\n\r\n": "d",
    b"PONG\r\n": "",
}


@given(st.lists(st.sampled_from(sorted(FRAMES)), max_size=8), st.lists(st.integers(1, 40)))
@settings(deadline=None)
def test_messages_come_out_whole_and_in_order_however_they_are_cut(frames, sizes):
    """Nothing is lost, added or joined."""
    data = b"".join(frames)
    cutter, found, at = FrameCutter(), [], 0
    for size in [*sizes, len(data)]:
        found += cutter.feed(data[at : at + size])
        at += size
    assert [one.data for one in found] == frames
    assert [one.subject for one in found] == [FRAMES[one] for one in frames]
    assert [one.is_published for one in found] == [bool(FRAMES[one]) for one in frames]


def test_message_that_is_not_whole_waits():
    """Its last byte makes it one."""
    cutter = FrameCutter()
    assert cutter.feed(b"PUB a 5\r\nhello\r") == []
    (frame,) = cutter.feed(b"\n")
    assert frame.data == b"PUB a 5\r\nhello\r\n"


@pytest.mark.parametrize("data", [b"PUB a\r\n", b"PUB a x\r\n", b"x" * (LINE_BYTES_MAX + 1)])
def test_what_is_no_clients_protocol_is_refused(data):
    """A relay must not guess."""
    with pytest.raises(CorruptData, match="NATS client"):
        FrameCutter().feed(data)
