"""Brings one file into the object store: whole, or by parts that a later agent can go on with.

What is known of an upload by parts is one small file, written before the first part is sent. Which
parts are stored the store tells itself: a part counts if it has the size and the MD5 sum of the
bytes that lie in the slot now. Rejected: noting each part on disk (a second truth, always a moment
behind the first).

Each request is tried again after a pause when the store is away, slow or broken. What only a person
can mend (``StoreRefuses``) is not: the next checkpoint tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeVar

from everstep.agent.rate import HostRate, UploadPace
from everstep.agent.shards import Begun, BegunFiles
from everstep.core.errors import EverstepError, NotFoundError
from everstep.core.ports import MultipartStore, Pace, PartialUpload, StoredPart
from everstep.objectstore.files import file_chunks

log = logging.getLogger(__name__)

T = TypeVar("T")
PARTS_COUNT_MAX: Final = 10_000  # of one object: S3's own limit
PARTS_MAX: Final = 4  # at a time, of all shards: half of what the client does at once
# 0.5 + 1 + 2 + 4 + 8 + 16 + 3 x 20 s: about a minute and a half, then the next checkpoint's turn.
TRIES_MAX: Final = 10
RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 20.0
BEGINNINGS_MAX: Final = 3  # of one upload by parts: each time somebody has dropped it meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What is to be stored where."""

    key: str
    path: str
    size_bytes: int
    checksum: str  # xxh3-128 of all of it
    bytes_per_s_max: int = 0  # 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A part's place in the file."""

    number: int
    offset: int
    size_bytes: int


def ranges_of(size_bytes: int, part_bytes: int) -> tuple[Range, ...]:
    """Cut a file into parts; all but the last are of one size."""
    return tuple(
        Range(number=number, offset=offset, size_bytes=min(part_bytes, size_bytes - offset))
        for number, offset in enumerate(range(0, size_bytes, part_bytes), start=1)
    )


def pause_s(key: str, tried: int) -> float:
    """Return how long to wait after so many tries.

    Twice as long each time; up to a quarter less by the key, so that the ranks of a fleet do not
    come back all at once, and each of them does the same every time.
    """
    longest = min(RETRY_S_MIN * (1 << (tried - 1)), RETRY_S_MAX)
    return longest * (1 - zlib.crc32(key.encode()) / 2**32 / 4)


class Transfers:
    """The transfers of one host.

    Args:
        objects: where to.
        begun: uploads by parts, on disk.
        rate: of the host.
        executor: for reading.
        part_bytes: larger files go by parts of this size.
        sleep: between tries.
    """

    def __init__(
        self,
        objects: MultipartStore,
        begun: BegunFiles,
        rate: HostRate,
        executor: Executor,
        part_bytes: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._objects = objects
        self._begun = begun
        self._rate = rate
        self._executor = executor
        self._part_bytes = part_bytes
        self._sleep = sleep
        self._parts = asyncio.Semaphore(PARTS_MAX)

    async def store(self, upload: Upload) -> None:
        """Store a file; when this ends in any way, no further piece of it is read.

        Raises:
            EverstepError: it could not be stored; names the object.
        """
        pace = UploadPace(self._rate, upload.bytes_per_s_max)
        try:
            if upload.size_bytes <= self._part_bytes:
                await self._whole(upload, pace)
            else:
                await self._by_parts(upload, pace)
        finally:
            pace.cut()

    async def drop(self, key: str) -> None:
        """Give up what has begun of an object; what the store keeps of it is swept later."""
        begun = self._begun.load(key)
        if begun is None:
            return
        self._begun.delete(key)
        try:
            await self._objects.abort_upload(PartialUpload(key=key, upload_id=begun.upload_id))
        except EverstepError as error:
            log.info("the parts of %s are left to the sweep: %s", key, error)

    async def _whole(self, upload: Upload, pace: Pace) -> None:
        key, path, size_bytes = upload.key, upload.path, upload.size_bytes
        async with self._parts:
            await self._again(
                key, lambda: self._objects.put_file(key, path, size_bytes=size_bytes, pace=pace)
            )

    async def _by_parts(self, upload: Upload, pace: Pace) -> None:
        part_bytes = max(self._part_bytes, -(-upload.size_bytes // PARTS_COUNT_MAX))
        ranges = ranges_of(upload.size_bytes, part_bytes)
        for left in reversed(range(BEGINNINGS_MAX)):
            try:
                await self._through(upload, ranges, pace)
            except NotFoundError:
                # Dropped meanwhile, or completed by a request whose answer was lost.
                self._begun.delete(upload.key)
                if await self._is_there(upload):
                    return
                if not left:
                    raise
            else:
                self._begun.delete(upload.key)
                return

    async def _through(self, upload: Upload, ranges: Sequence[Range], pace: Pace) -> None:
        begun, stored = await self._begin(upload, ranges)
        missing = [part for part in ranges if part.number not in stored]
        sent = await self._send(upload, begun, missing, pace)
        parts = sorted([*stored.values(), *sent], key=lambda part: part.number)
        await self._again(upload.key, lambda: self._objects.complete_upload(begun, parts))

    async def _begin(
        self, upload: Upload, ranges: Sequence[Range]
    ) -> tuple[PartialUpload, dict[int, StoredPart]]:
        """Return the upload to go on with, and its good parts by number. Raises NotFoundError."""
        key, part_bytes = upload.key, ranges[0].size_bytes
        known = self._begun.load(key)
        if known is not None and known.fits(upload.checksum, part_bytes):
            begun = PartialUpload(key=key, upload_id=known.upload_id)
            found = await self._again(key, lambda: self._objects.parts(begun))
            good = await self._call(lambda: good_parts(upload.path, ranges, found))
            log.info("upload of %s goes on: %d of %d parts are stored", key, len(good), len(ranges))
            return begun, good
        if known is not None:
            await self.drop(key)  # of another content: the step was stored differently before
        begun = await self._again(key, lambda: self._objects.begin_upload(key))
        self._begun.save(
            Begun(
                key=key,
                upload_id=begun.upload_id,
                checksum=upload.checksum,
                part_bytes=part_bytes,
            )
        )
        return begun, {}

    async def _send(
        self, upload: Upload, begun: PartialUpload, missing: Sequence[Range], pace: Pace
    ) -> list[StoredPart]:
        """Store parts, some at a time; the first that cannot be stored ends the others."""

        async def send(part: Range) -> StoredPart:
            async with self._parts:
                return await self._again(
                    upload.key,
                    lambda: self._objects.put_part(
                        begun,
                        part.number,
                        upload.path,
                        size_bytes=part.size_bytes,
                        offset=part.offset,
                        pace=pace,
                    ),
                )

        failed: EverstepError | None = None
        try:
            async with asyncio.TaskGroup() as group:
                sending = [group.create_task(send(part)) for part in missing]
        except* EverstepError as errors:
            failed = first_of(errors)
        if failed is not None:
            raise failed
        return [task.result() for task in sending]

    async def _is_there(self, upload: Upload) -> bool:
        found = await self._again(upload.key, lambda: self._objects.list(upload.key))
        return any((one.key, one.size_bytes) == (upload.key, upload.size_bytes) for one in found)

    async def _again(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        for tried in range(1, TRIES_MAX):
            try:
                return await work()
            except EverstepError as error:
                if not error.retryable:
                    raise
                log.warning("upload of %s, try %d of %d: %s", key, tried, TRIES_MAX, error)
            await self._sleep(pause_s(key, tried))
        return await work()

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def good_parts(
    path: str, ranges: Sequence[Range], found: Sequence[StoredPart]
) -> dict[int, StoredPart]:
    """Return those stored parts that hold what the file holds there now.

    An etag that is no MD5 sum (a store that encrypts by keys of its own) makes a part be sent
    again, which is safe.
    """
    good: dict[int, StoredPart] = {}
    for part in ranges:
        same_size = [
            one for one in found if (one.number, one.size_bytes) == (part.number, part.size_bytes)
        ]
        if same_size:
            digest = hashlib.md5(usedforsecurity=False)
            for piece in file_chunks(path, offset=part.offset, size_bytes=part.size_bytes):
                digest.update(piece)
            good |= {one.number: one for one in same_size if one.etag == digest.hexdigest()}
    return good


def first_of(errors: ExceptionGroup[EverstepError]) -> EverstepError:
    """Return the first error of a group that may hold groups."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, ExceptionGroup) else first
