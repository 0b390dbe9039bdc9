"""Sends bytes to a peer port and back, and compares them: this host's own, and a partner's.

The peer server checks what arrives before it answers with the same bytes, so it is known which of
the two ways was wrong. The rate is told and not judged: nobody told us what the network carries.
"""

from __future__ import annotations

import socket
from typing import Final

import numpy as np
import xxhash

from everstep.agent import framing
from everstep.core.errors import CorruptData
from everstep.core.probes import PAIR, Figure, PartnerHost, ProbeResult, Verdict
from everstep.core.system import Clock

ECHO_BYTES: Final = 1 << 20
CONNECT_S_MAX: Final = 2.0  # an idle host in the same cluster answers in milliseconds
PROGRESS_S_MAX: Final = 5.0
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)  # spreads neighbours over all bits (Knuth 6.4)


def check_link(partner: PartnerHost, echoes: int, clock: Clock, *, name: str = PAIR) -> ProbeResult:
    """Send ``echoes`` MiB to a peer port and get them back.

    Args:
        partner: whose port; this host's own for the loop-back.
        echoes: how many of 1 MiB, one after the other.
        clock: for the rate.
        name: of the probe.
    """
    began_ms = clock.monotonic_ms()
    sent, wrong = 0, ""
    try:
        with socket.create_connection((partner.address, partner.port), CONNECT_S_MAX) as link:
            link.settimeout(PROGRESS_S_MAX)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while sent < echoes and not wrong:
                wrong = _echo(link, sent)
                sent += 1
    except (OSError, CorruptData) as error:
        wrong = f"after {sent} MiB: {error or type(error).__name__}"
    duration_ms = max(clock.monotonic_ms() - began_ms, 1e-3)
    return ProbeResult(
        name=name,
        where=partner.host_id if name == PAIR else "",
        verdict=Verdict.FAILED if wrong else Verdict.PASSED,
        detail=wrong,
        duration_ms=round(duration_ms),
        figures=(
            Figure(name="sent_bytes", value=float(sent * ECHO_BYTES)),
            Figure(name="both_ways_bytes_per_s", value=2e3 * sent * ECHO_BYTES / duration_ms),
        ),
    )


def _echo(link: socket.socket, number: int) -> str:
    data = _bytes(number)
    checksum = xxhash.xxh3_64_hexdigest(data)
    framing.send(link, {"kind": "echo", "data": data, "checksum": checksum})
    answer = framing.receive(link)
    if answer is None:
        return f"MiB {number} did not arrive as it was sent: the other side closed"
    got = answer.get("data")
    if got == data:
        return ""
    if not isinstance(got, bytes) or len(got) != len(data):
        return f"MiB {number} came back as something else"
    at = next(i for i, (one, other) in enumerate(zip(got, data, strict=True)) if one != other)
    return f"MiB {number} came back wrong: byte {at} is {got[at]:#04x}, expected {data[at]:#04x}"


def _bytes(number: int) -> bytes:
    """Return a MiB that differs from every other one, and within itself."""
    words = ECHO_BYTES // 8
    places = np.arange(number * words, (number + 1) * words, dtype=np.uint64)
    mixed: bytes = (places * _GOLDEN).tobytes()
    return mixed
