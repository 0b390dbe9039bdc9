"""Tries this host's links to others: a connection to their peer port and a small checked echo.

The peer port is the one that snapshots go to, so a way that carries no echo carries no copy either.
Whether collectives use the same network is the cluster's choice: where they have one of their own
(InfiniBand beside Ethernet), this sees only the agents'.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any, Final

import xxhash

from everstep.agent import framing
from everstep.core.errors import CorruptData
from everstep.core.system import Clock
from everstep.wire.v1.agents_pb2 import LinkCheck, LinkPeer

# A try, and one more for what was late: a sound host answers within milliseconds, and one whose
# cores are all busy within a second.
TRY_S_MAX: Final = 0.4
TRIES: Final = 2
# More than one network packet, so that a way that carries only small ones (a wrong MTU) is found.
ECHO_BYTES: Final = 4_096
# The monitor asks for six; a small job's hosts all check one another.
PEERS_MAX: Final = 64


async def check_links(peers: Sequence[LinkPeer], clock: Clock) -> list[LinkCheck]:
    """Try every peer at once; takes ``TRY_S_MAX`` times ``TRIES`` at most."""
    checks = await asyncio.gather(*(_check(peer, clock) for peer in peers[:PEERS_MAX]))
    return list(checks)


def echo_of(frame: framing.Frame) -> framing.Frame:
    """Answer an echo, for the peer server.

    Raises:
        CorruptData: the bytes are not those that were sent.
    """
    data, checksum = frame.get("data"), frame.get("checksum")
    if not isinstance(data, bytes) or checksum != _checksum(data):
        raise CorruptData("an echo with other bytes than its checksum says")
    return {"kind": "echo", "data": data, "checksum": checksum}


async def _check(peer: LinkPeer, clock: Clock) -> LinkCheck:
    why = ""
    for _ in range(TRIES):
        began_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(TRY_S_MAX):
                await _echo(peer.address, peer.port)
        except TimeoutError:
            why = f"no echo within {TRY_S_MAX} s"
        except (OSError, CorruptData) as error:
            why = str(error) or type(error).__name__
        else:
            took_ms = round(clock.monotonic_ms() - began_ms)
            return LinkCheck(host_id=peer.host_id, reached=True, took_ms=took_ms)
    return LinkCheck(host_id=peer.host_id, reached=False, why=why)


async def _echo(address: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        data = os.urandom(ECHO_BYTES)
        sent: dict[str, Any] = {"kind": "echo", "data": data, "checksum": _checksum(data)}
        framing.write(writer, sent)
        await writer.drain()
        answer = await framing.read(reader)
        if answer != sent:
            raise CorruptData("what came back is not what was sent")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _checksum(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)
