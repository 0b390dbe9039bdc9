"""Objects in any S3 server, through the ``minio`` client.

The client blocks, so its calls run in threads, at most ``CONCURRENCY_MAX`` at a time: an upload of
a checkpoint must not starve everything else that uses threads. Outages are ``Unavailable``, retried
by the caller, who knows how long it is worth to wait; the client itself does not retry. What only
a person can mend is ``StoreRefuses``.

Files are streamed, alone or as parts of an upload that may be taken up again (``s3_signed``): the
client's own ``put_object`` reads whole parts into memory and forgets them when it is interrupted.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError

from everstep.core.errors import EverstepError, NotFoundError, Unavailable
from everstep.core.ports import ObjectInfo, Pace, PartialUpload, StoredPart
from everstep.core.system import Clock, SystemClock
from everstep.objectstore.files import file_chunks
from everstep.objectstore.s3_errors import Answer, explain
from everstep.objectstore.s3_signed import SignedError, SignedRequests

CONCURRENCY_MAX: Final = 8  # more streams than saturate one host's link to its object store
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 60.0  # between two packets, not for a whole object
PART_BYTES: Final = 64 * 1024 * 1024  # S3 wants >= 5 MiB; 10,000 parts then make 640 GB an object

T = TypeVar("T")


class S3Store:
    """Implements ``core.ports.MultipartStore`` on one bucket."""

    def __init__(
        self,
        client: Minio,
        http: urllib3.PoolManager,
        bucket: str,
        threads: ThreadPoolExecutor,
        clock: Clock,
    ) -> None:
        """Use ``open``."""
        self._client = client
        self._bucket = bucket
        self._threads = threads
        self._clock = clock
        self._signed = SignedRequests(client, http, bucket, clock)
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
        clock: Clock | None = None,
    ) -> AsyncIterator[S3Store]:
        """Make a client; the bucket is created at the first use if absent.

        Args:
            endpoint: ``host:port`` without a scheme.
            access_key: who.
            secret_key: and their secret.
            bucket: holds every key.
            secure: TLS.
            clock: that dates signatures; the machine's if None.
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
            yield cls(client, http, bucket, threads, clock or SystemClock())
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            http.clear()

    async def put_file(
        self, key: str, path: str, *, size_bytes: int, offset: int = 0, pace: Pace | None = None
    ) -> None:
        """Store part of a file under ``key`` in one piece, replacing what is there."""

        def put() -> None:
            body = file_chunks(path, offset=offset, size_bytes=size_bytes, pace=pace)
            self._signed.put(key, body, size_bytes)

        await self._call(key, put)

    async def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, replacing what is there."""
        await self._call(
            key,
            lambda: self._client.put_object(
                self._bucket, key, io.BytesIO(data), len(data), part_size=PART_BYTES
            ),
        )

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

    async def begin_upload(self, key: str) -> PartialUpload:
        """Begin an upload by parts."""
        upload_id = await self._call(key, lambda: self._signed.begin(key))
        return PartialUpload(key=key, upload_id=upload_id)

    async def put_part(
        self,
        upload: PartialUpload,
        number: int,
        path: str,
        *,
        size_bytes: int,
        offset: int,
        pace: Pace | None = None,
    ) -> StoredPart:
        """Store one part. Raises NotFoundError."""

        def put() -> StoredPart:
            body = file_chunks(path, offset=offset, size_bytes=size_bytes, pace=pace)
            return self._signed.put_part(upload, number, body, size_bytes)

        return await self._call(upload.key, put)

    async def parts(self, upload: PartialUpload) -> Sequence[StoredPart]:
        """Return the stored parts, by number. Raises NotFoundError."""
        return await self._call(upload.key, lambda: self._signed.parts(upload))

    async def complete_upload(self, upload: PartialUpload, parts: Sequence[StoredPart]) -> None:
        """Make these parts the object. Raises NotFoundError."""
        await self._call(upload.key, lambda: self._signed.complete(upload, parts))

    async def abort_upload(self, upload: PartialUpload) -> None:
        """Drop the upload and its parts; already gone is fine."""
        try:
            await self._call(upload.key, lambda: self._signed.abort(upload))
        except NotFoundError:
            return

    async def unfinished_uploads(self, prefix: str) -> Sequence[PartialUpload]:
        """Return what has begun and not ended under a prefix, sorted by key and id."""

        def found() -> Sequence[PartialUpload]:
            uploads = []
            last: PartialUpload | None = None
            while True:
                # A call on the bucket: its URL cannot be signed by the client's public means.
                page = self._client._list_multipart_uploads(  # noqa: SLF001 - see above
                    self._bucket,
                    prefix=prefix,
                    key_marker=last.key if last is not None else None,
                    upload_id_marker=last.upload_id if last is not None else None,
                )
                uploads += [
                    PartialUpload(key=one.object_name, upload_id=one.upload_id or "")
                    for one in page.uploads
                ]
                if not page.is_truncated:
                    return uploads
                last = uploads[-1]

        uploads = await self._call(prefix, found)
        return sorted(uploads, key=lambda upload: (upload.key, upload.upload_id))

    async def _call(self, key: str, work: Callable[[], T]) -> T:
        """Run blocking work in a thread, with the bucket there and errors in our words."""
        loop = asyncio.get_running_loop()
        try:
            if not self._bucket_known:
                await loop.run_in_executor(self._threads, self._ensure_bucket)
                self._bucket_known = True
            return await loop.run_in_executor(self._threads, work)
        except urllib3.exceptions.HTTPError as error:
            where = f"object {key!r} in bucket {self._bucket!r}"
            raise Unavailable(f"{where}: {error}") from error
        except (SignedError, S3Error, ServerError, InvalidResponseError) as error:
            raise self._explain(key, _answer(error)) from error

    def _ensure_bucket(self) -> None:
        if self._client.bucket_exists(self._bucket):
            return
        try:
            self._client.make_bucket(self._bucket)
        except S3Error as error:
            if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    def _explain(self, key: str, answer: Answer) -> EverstepError:
        if answer.code == "NoSuchBucket":
            self._bucket_known = False
        return explain(f"object {key!r}", self._bucket, answer, self._clock.now_ms())


def _answer(error: SignedError | S3Error | ServerError | InvalidResponseError) -> Answer:
    """Return what the server said, however the client tells it."""
    if isinstance(error, SignedError):
        return error.answer
    if isinstance(error, S3Error):
        response = error.response
        return Answer(
            status=response.status,
            code=error.code or "",
            message=error.message or "",
            date=response.headers.get("date", ""),
        )
    status = error.status_code if isinstance(error, ServerError) else vars(error).get("_code", 500)
    return Answer(status=status, code="", message=str(error), date="")
