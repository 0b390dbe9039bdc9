"""Objects in memory: for the simulator and for tests, under the same contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from everstep.core.errors import NotFoundError
from everstep.core.ports import ObjectInfo


class MemoryObjects:
    """Implements ``core.ports.ObjectStore`` with a dictionary."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def put_file(self, key: str, path: str, *, size_bytes: int, offset: int = 0) -> None:
        """Store part of a file under ``key``, replacing what is there."""
        self._objects[key] = await asyncio.to_thread(_read_part, path, size_bytes, offset)

    async def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, replacing what is there."""
        self._objects[key] = bytes(data)

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises NotFoundError."""
        data = self._objects.get(key)
        if data is None:
            raise NotFoundError(f"no object {key!r} in memory")
        return data

    async def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream the object. Raises NotFoundError."""
        data = await self.get(key)
        for start in range(0, len(data), chunk_bytes):
            yield data[start : start + chunk_bytes]

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """Return the objects whose key starts with ``prefix``, sorted by key."""
        return [
            ObjectInfo(key=key, size_bytes=len(data))
            for key, data in sorted(self._objects.items())
            if key.startswith(prefix)
        ]

    async def delete(self, key: str) -> None:
        """Remove the object; already gone is fine."""
        self._objects.pop(key, None)


def _read_part(path: str, size_bytes: int, offset: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(offset)
        data = file.read(size_bytes)
    assert len(data) == size_bytes, f"{path} has {len(data)} bytes at {offset}, not {size_bytes}"
    return data
