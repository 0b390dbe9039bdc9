"""A way between hosts that can be cut: bytes are then neither carried nor refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Relay:
    """Carries connections to one host's peer port; what is cut stays silent until it is mended."""

    port: int
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    carried_bytes: int = 0

    def cut(self) -> None:
        """Carry nothing from now on, as a network does that drops packets."""
        self.whole.clear()

    def mend(self) -> None:
        """Carry what waits, and all that follows."""
        self.whole.set()


@asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """Relay to a port of this machine."""
    relay, tasks, writers = Relay(0), set(), []
    relay.whole.set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await relay.whole.wait()
                relay.carried_bytes += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        await relay.whole.wait()
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writers.extend((writer, back))
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.mend()
        while not all(task.done() for task in tasks):
            for writer in writers:
                writer.transport.abort()
            await asyncio.wait(tasks, timeout=0.1)
