"""An object store that stands still until a test lets it go on."""

from __future__ import annotations

import asyncio

from everstep.objectstore.memory import MemoryObjects


class GatedObjects(MemoryObjects):
    """An object store that takes nothing until its gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def put_file(self, key, path, *, size_bytes, offset=0, pace=None):
        self.asked.set()
        await self.gate.wait()
        await super().put_file(key, path, size_bytes=size_bytes, offset=offset)
