"""Points at which a process asks a test whether it may live on.

The parties of the pipeline run as processes whose object store, bus and event store are wrapped:
before and after each call they name the point they are at and wait for the test's answer. The test
may kill them there, or kill the server that they are about to call.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

GATE = "EVERSTEP_TEST_GATE"  # environment: the test's socket


async def passes(point: str) -> None:
    """Ask the test; returns when it lets us go on."""
    reader, writer = await asyncio.open_unix_connection(os.environ[GATE])
    writer.write(f"{point}\n".encode())
    await reader.readline()
    writer.close()


def passes_from_a_thread(point: str) -> None:
    """Ask the test, blocking."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(os.environ[GATE])
        asking.sendall(f"{point}\n".encode())
        asking.recv(1)


class Gate:
    """The test's side: lets everybody pass, but for who is at the point that was set."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._point = ""
        self._act: Callable[[], Awaitable[bool]] | None = None
        self.reached = asyncio.Event()

    def set(self, point: str, act: Callable[[], Awaitable[bool]]) -> None:
        """Do ``act`` when somebody is at ``point``, once; whether they go on is its answer."""
        self._point, self._act = point, act
        self.reached.clear()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one question."""
        point = (await reader.readline()).decode().strip()
        self.seen.append(point)
        goes_on = True
        if point == self._point and self._act is not None:
            act, self._act = self._act, None
            goes_on = await act()
            self.reached.set()
        if goes_on:
            writer.write(b"\n")
        writer.close()


@asynccontextmanager
async def open_gate(path: Path):
    """Answer questions at ``path`` until the block ends."""
    gate = Gate()
    server = await asyncio.start_unix_server(gate.answer, path)
    async with server:
        yield gate
