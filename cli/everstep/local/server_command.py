"""How to run a bundled server: what its ``prepare`` function hands to whoever supervises it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.system import IdSource

HOST: Final = "127.0.0.1"
# Below Linux's ephemeral range (32768): a client that reconnects to a stopped server's port in that
# range may be given the very same port as its source, connect to itself and keep the server out.
PORT_MIN: Final = 15_000
PORT_MAX: Final = 31_999
PORTS_VARIABLE: Final = "EVERSTEP_PORTS"  # another range, such as 20000-20999
PROBE_TIMEOUT_S: Final = 1.0  # chosen: loopback answers in milliseconds
PROBE_PAUSE_S: Final = 0.02  # chosen: small against the 0.1 s of the fastest start


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """What a supervisor needs to run one server.

    ``env`` is the whole environment. ``ready`` may be awaited at any time and never raises. When
    ``stop_grace_s`` after ``stop_signal`` have passed, SIGKILL loses nothing: all of them recover
    from it. ``leftovers`` are files elsewhere, to be removed once the server has stopped.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    ready: Callable[[], Awaitable[bool]]
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace_s: float = 3.0
    leftovers: tuple[Path, ...] = ()


async def wait_ready(
    command: ServerCommand, *, is_alive: Callable[[], bool], timeout_s: float
) -> None:
    """Return when the server answers.

    Raises:
        Unavailable: the process ended, or did not answer in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while not await command.ready():
                if not is_alive():
                    raise Unavailable(f"{command.name} ended before it was ready: see its log")
                await asyncio.sleep(PROBE_PAUSE_S)
    except TimeoutError:
        raise Unavailable(f"{command.name} was not ready within {timeout_s} s") from None


def free_ports(count: int, ids: IdSource, *, besides: Collection[int] = ()) -> list[int]:
    """Return different TCP ports that nothing uses at loopback, from a start drawn from ``ids``.

    ``besides`` are spoken for, though nothing may listen at them yet.

    Whoever chooses ports at the same time, or while a server is down for a moment, may be given the
    same: ``EVERSTEP_PORTS`` keeps them apart.

    Raises:
        InvalidInput: ``EVERSTEP_PORTS`` is no range of ports.
        Unavailable: the range is exhausted.
    """
    low, high = _port_range()
    span = high - low + 1
    start = int(ids.new_id("")[:8], 16)
    found: list[int] = []
    for offset in range(span):
        port = low + (start + offset) % span
        if port not in besides and _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(
        f"only {len(found)} of {count} ports are free in {low}-{high}: "
        f"name another range in {PORTS_VARIABLE}"
    )


def _port_range() -> tuple[int, int]:
    asked = os.environ.get(PORTS_VARIABLE)
    if not asked:
        return PORT_MIN, PORT_MAX
    numbers = re.fullmatch(r"(\d{1,5})-(\d{1,5})", asked)
    if numbers:
        low, high = int(numbers[1]), int(numbers[2])
        if 1_024 <= low <= high < 65_536:
            return low, high
    raise InvalidInput(
        f"{PORTS_VARIABLE} is {asked!r}: give two ports from 1024 to 65535, such as 20000-20999"
    )


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
