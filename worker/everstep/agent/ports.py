"""Chooses TCP ports that stay free until they are used.

A rendezvous port is chosen on one host and bound seconds later, so it must lie outside the range
from which the kernel takes ports for outgoing connections, or one of those may take it meanwhile.
"""

from __future__ import annotations

import socket
import zlib
from pathlib import Path
from typing import Final

from everstep.core.errors import Unavailable

EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Between two choices. A large prime, so that two agents that begin close to one another on the same
# machine do not go on choosing the same ports; it divides no plausible number of candidates.
STRIDE: Final = 7_919
# Above the ports that well-known services listen on, below where Linux' default range begins.
PORT_FIRST: Final = 20_000
PORT_LAST: Final = 65_535
TRIES_MAX: Final = 1_000  # a host with a thousand listeners in a row is not one of ours


class PortChooser:
    """Hands out ports in turn, beginning anywhere.

    Args:
        seed: says where to begin; a random text, because hosts of other stacks on the same machine
            may have the same names.
        address: where the ports must be free.
    """

    def __init__(self, seed: str, address: str) -> None:
        self._address = address
        self._candidates = candidates(read_ephemeral_range())
        self._next = zlib.crc32(seed.encode())

    def choose(self) -> int:
        """Return a port that nobody listens on.

        Raises:
            Unavailable: none is free.
        """
        for _ in range(TRIES_MAX):
            port = self._candidates[self._next % len(self._candidates)]
            self._next += STRIDE
            if is_free(self._address, port):
                return port
        raise Unavailable(f"no free port on {self._address} after {TRIES_MAX} tries")


def candidates(ephemeral: tuple[int, int]) -> range | list[int]:
    """Return the ports to choose from: all that the kernel does not hand out by itself."""
    first, last = ephemeral
    outside = [port for port in range(PORT_FIRST, PORT_LAST + 1) if not first <= port <= last]
    return outside or range(PORT_FIRST, PORT_LAST + 1)  # everything is ephemeral: take any


def read_ephemeral_range() -> tuple[int, int]:
    """Return the kernel's own range; Linux' default when it cannot be read."""
    try:
        first, last = EPHEMERAL_RANGE.read_text().split()
    except OSError:
        return 32_768, 60_999
    return int(first), int(last)


def is_free(address: str, port: int) -> bool:
    """Say whether ``port`` can be bound now; one in TIME_WAIT counts as taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
