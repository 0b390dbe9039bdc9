"""Objects in any S3 server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from everstep.core.ports import ObjectInfo


class S3Store:
    """Implements ``core.ports.ObjectStore`` on one bucket."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        endpoint: str,
        access_key: str,
        secret_key: str,
        bucket: str,
        secure: bool = True,
    ) -> AsyncIterator[S3Store]:
        """Make a client; the bucket is created at the first use if absent.

        Args:
            endpoint: ``host:port`` without a scheme.
            access_key: who.
            secret_key: and their secret.
            bucket: holds every key.
            secure: TLS.
        """
        raise NotImplementedError
        yield

    async def put_file(self, key: str, path: str, *, size_bytes: int, offset: int = 0) -> None:
        """Store part of a file under ``key``, replacing what is there."""
        raise NotImplementedError

    async def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, replacing what is there."""
        raise NotImplementedError

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises NotFoundError, Unavailable."""
        raise NotImplementedError

    async def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream the object. Raises NotFoundError, Unavailable."""
        raise NotImplementedError
        yield b""

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """Return the objects whose key starts with ``prefix``, sorted by key."""
        raise NotImplementedError

    async def delete(self, key: str) -> None:
        """Remove the object; already gone is fine."""
        raise NotImplementedError
