"""Objects in memory: for the simulator and for tests, under the same contract."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence

from everstep.core.errors import NotFoundError
from everstep.core.ports import ObjectInfo, Pace, PartialUpload, StoredPart
from everstep.objectstore.files import file_chunks


class MemoryObjects:
    """Implements ``core.ports.MultipartStore`` with dictionaries."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._uploads: dict[PartialUpload, dict[int, bytes]] = {}
        self._begun_count = 0

    async def put_file(
        self, key: str, path: str, *, size_bytes: int, offset: int = 0, pace: Pace | None = None
    ) -> None:
        """Store part of a file under ``key``, replacing what is there."""
        self._objects[key] = await asyncio.to_thread(_read_part, path, size_bytes, offset, pace)

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

    async def begin_upload(self, key: str) -> PartialUpload:
        """Begin an upload by parts."""
        self._begun_count += 1
        upload = PartialUpload(key=key, upload_id=f"upload-{self._begun_count:08d}")
        self._uploads[upload] = {}
        return upload

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
        self._parts_of(upload)
        data = await asyncio.to_thread(_read_part, path, size_bytes, offset, pace)
        self._parts_of(upload)[number] = data
        return _stored(number, data)

    async def parts(self, upload: PartialUpload) -> Sequence[StoredPart]:
        """Return the stored parts, by number. Raises NotFoundError."""
        return [_stored(number, data) for number, data in sorted(self._parts_of(upload).items())]

    async def complete_upload(self, upload: PartialUpload, parts: Sequence[StoredPart]) -> None:
        """Make these parts the object. Raises NotFoundError."""
        stored = self._parts_of(upload)
        for part in parts:
            if part.number not in stored or _stored(part.number, stored[part.number]) != part:
                raise NotFoundError(f"part {part.number} of {upload.key!r} is gone")
        self._objects[upload.key] = b"".join(stored[part.number] for part in parts)
        del self._uploads[upload]

    async def abort_upload(self, upload: PartialUpload) -> None:
        """Drop the upload and its parts; already gone is fine."""
        self._uploads.pop(upload, None)

    async def unfinished_uploads(self, prefix: str) -> Sequence[PartialUpload]:
        """Return what has begun and not ended under a prefix, sorted by key and id."""
        found = [upload for upload in self._uploads if upload.key.startswith(prefix)]
        return sorted(found, key=lambda upload: (upload.key, upload.upload_id))

    def _parts_of(self, upload: PartialUpload) -> dict[int, bytes]:
        parts = self._uploads.get(upload)
        if parts is None:
            raise NotFoundError(f"no upload {upload.upload_id} of {upload.key!r} in memory")
        return parts


def _stored(number: int, data: bytes) -> StoredPart:
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return StoredPart(number=number, size_bytes=len(data), etag=etag)


def _read_part(path: str, size_bytes: int, offset: int, pace: Pace | None) -> bytes:
    return b"".join(
        bytes(chunk) for chunk in file_chunks(path, offset=offset, size_bytes=size_bytes, pace=pace)
    )
