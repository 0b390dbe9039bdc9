"""Objects in any S3 server, through the ``minio`` client.

The client blocks, so its calls run in threads, at most ``CONCURRENCY_MAX`` at a time: an upload of
a checkpoint must not starve everything else that uses threads. Outages are ``Unavailable``, retried
by the caller, who knows how long it is worth to wait; the client itself does not retry.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError

from everstep.core.errors import EverstepError, NotFoundError, Unavailable
from everstep.core.ports import ObjectInfo

CONCURRENCY_MAX: Final = 8  # more streams than saturate one host's link to its object store
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 60.0  # between two packets, not for a whole object
PART_BYTES: Final = 64 * 1024 * 1024  # S3 wants >= 5 MiB; 10,000 parts then make 640 GB an object

_MISSING: Final = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchObject"})
_REFUSED: Final = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"})

T = TypeVar("T")


class S3Store:
    """Implements ``core.ports.ObjectStore`` on one bucket."""

    def __init__(self, client: Minio, bucket: str, threads: ThreadPoolExecutor) -> None:
        """Use ``open``."""
        self._client = client
        self._bucket = bucket
        self._threads = threads
        self._bucket_known = False

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
        http = urllib3.PoolManager(
            maxsize=CONCURRENCY_MAX,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
        )
        client = Minio(
            endpoint, access_key=access_key, secret_key=secret_key, secure=secure, http_client=http
        )
        threads = ThreadPoolExecutor(CONCURRENCY_MAX, thread_name_prefix="s3")
        try:
            yield cls(client, bucket, threads)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            http.clear()

    async def put_file(self, key: str, path: str, *, size_bytes: int, offset: int = 0) -> None:
        """Store part of a file under ``key``, replacing what is there."""

        def put() -> None:
            with Path(path).open("rb") as file:
                file.seek(offset)
                self._put(key, file, size_bytes)

        await self._call(key, put)

    async def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, replacing what is there."""
        await self._call(key, lambda: self._put(key, io.BytesIO(data), len(data)))

    async def get(self, key: str) -> bytes:
        """Return the whole object. Raises NotFoundError, Unavailable."""

        def get() -> bytes:
            response = self._client.get_object(self._bucket, key)
            try:
                return response.read()
            finally:
                response.close()
                response.release_conn()

        return await self._call(key, get)

    async def chunks(self, key: str, *, chunk_bytes: int) -> AsyncIterator[bytes]:
        """Stream the object. Raises NotFoundError, Unavailable."""
        response = await self._call(key, lambda: self._client.get_object(self._bucket, key))
        try:
            while chunk := await self._call(key, lambda: response.read(chunk_bytes)):
                yield chunk
        finally:
            response.close()
            response.release_conn()

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """Return the objects whose key starts with ``prefix``, sorted by key."""

        def found() -> list[ObjectInfo]:
            return [
                ObjectInfo(key=item.object_name, size_bytes=item.size)
                for item in self._client.list_objects(self._bucket, prefix, recursive=True)
            ]

        return sorted(await self._call(prefix, found), key=lambda info: info.key)

    async def delete(self, key: str) -> None:
        """Remove the object; already gone is fine."""
        await self._call(key, lambda: self._client.remove_object(self._bucket, key))

    def _put(self, key: str, source: BinaryIO, size_bytes: int) -> None:
        self._client.put_object(self._bucket, key, source, size_bytes, part_size=PART_BYTES)

    async def _call(self, key: str, work: Callable[[], T]) -> T:
        """Run blocking work in a thread, with the bucket there and errors in our words."""
        loop = asyncio.get_running_loop()
        try:
            if not self._bucket_known:
                await loop.run_in_executor(self._threads, self._ensure_bucket)
                self._bucket_known = True
            return await loop.run_in_executor(self._threads, work)
        except (S3Error, ServerError, InvalidResponseError, urllib3.exceptions.HTTPError) as error:
            raise self._explain(key, error) from error

    def _ensure_bucket(self) -> None:
        if self._client.bucket_exists(self._bucket):
            return
        try:
            self._client.make_bucket(self._bucket)
        except S3Error as error:
            if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    def _explain(self, key: str, error: Exception) -> EverstepError:
        where = f"object {key!r} in bucket {self._bucket!r}"
        code: Any = getattr(error, "code", None)
        if code in _MISSING:
            return NotFoundError(f"no {where}")
        if code in _REFUSED:
            return Unavailable(f"{where}: the object store refuses our keys ({code})")
        return Unavailable(f"{where}: {error}")
