"""What every object store keeps: S3 and memory under the same rules."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everstep.core.errors import CorruptData, NotFoundError, RefusedError
from everstep.core.ports import MultipartStore, ObjectInfo, PartialUpload, StoredPart
from everstep.core.system import RandomIds
from everstep.objectstore.memory import MemoryObjects
from everstep.objectstore.s3 import S3Store


@pytest.fixture(params=["memory", "s3"])
async def objects(request: pytest.FixtureRequest) -> AsyncIterator[MultipartStore]:
    """A store with an empty bucket that nobody has created yet."""
    if request.param == "memory":
        yield MemoryObjects()
        return
    servers = request.getfixturevalue("servers").servers
    async with S3Store.open(
        endpoint=servers.s3_endpoint,
        access_key=servers.credentials.s3_access_key,
        secret_key=servers.credentials.s3_secret_key,
        bucket=RandomIds().new_id("test"),
        secure=False,
    ) as store:
        yield store


@pytest.mark.parametrize("size_bytes", [0, 1, 5_000_001])
async def test_stored_object_is_returned_unchanged(
    objects: MultipartStore, size_bytes: int
) -> None:
    """Whole, and as a stream of chunks."""
    data = os.urandom(size_bytes)
    await objects.put("a/b.shard", data)
    assert await objects.get("a/b.shard") == data
    chunks = [chunk async for chunk in objects.chunks("a/b.shard", chunk_bytes=1_000_000)]
    assert b"".join(chunks) == data
    assert all(0 < len(chunk) <= 1_000_000 for chunk in chunks)


async def test_second_put_replaces_the_object(objects: MultipartStore) -> None:
    """The newest bytes win, whatever their size."""
    await objects.put("a", b"long long long")
    await objects.put("a", b"short")
    assert await objects.get("a") == b"short"


async def test_part_of_a_file_is_stored(objects: MultipartStore, tmp_path: Path) -> None:
    """An upload may leave out what lies before and behind."""
    path = tmp_path / "slot"
    path.write_bytes(b"headBODYtail")
    await objects.put_file("a", str(path), size_bytes=4, offset=4)
    assert await objects.get("a") == b"BODY"
    await objects.put_file("b", str(path), size_bytes=12)
    assert await objects.get("b") == b"headBODYtail"


async def test_missing_object_is_named(objects: MultipartStore) -> None:
    """Whoever reads a checkpoint learns which shard is gone."""
    with pytest.raises(NotFoundError, match="jobs/j/rank-00007"):
        await objects.get("jobs/j/rank-00007.shard")
    with pytest.raises(NotFoundError, match="jobs/j/rank-00007"):
        async for _ in objects.chunks("jobs/j/rank-00007.shard", chunk_bytes=10):
            pass


async def test_list_returns_keys_under_a_prefix_sorted(objects: MultipartStore) -> None:
    """A prefix need not end at a slash; an unknown one has nothing under it."""
    for key in ("jobs/b/2", "jobs/a/10", "jobs/a/1", "other"):
        await objects.put(key, key.encode())
    assert await objects.list("jobs/a/1") == [
        ObjectInfo(key="jobs/a/1", size_bytes=8),
        ObjectInfo(key="jobs/a/10", size_bytes=9),
    ]
    assert [info.key for info in await objects.list("")] == [
        "jobs/a/1",
        "jobs/a/10",
        "jobs/b/2",
        "other",
    ]
    assert await objects.list("none/") == []


async def test_deleted_object_is_gone(objects: MultipartStore) -> None:
    """Deleting again is fine."""
    await objects.put("a", b"x")
    await objects.delete("a")
    await objects.delete("a")
    assert await objects.list("") == []
    with pytest.raises(NotFoundError):
        await objects.get("a")


PART_BYTES = 5 << 20  # the least that S3 takes for a part that is not the last
KEY = "jobs/j/step-00000001/gen-1/rank-00000.shard"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two parts and a bit, between what is not to be stored."""
    path = tmp_path / "slot"
    path.write_bytes(b"head" + os.urandom(2 * PART_BYTES + 7) + b"tail")
    return path


def inside(file: Path) -> bytes:
    """Return what is to be stored."""
    return file.read_bytes()[4:-4]


async def put_part(
    objects: MultipartStore, upload: PartialUpload, file: Path, number: int
) -> StoredPart:
    """Store one of the three parts."""
    offset = (number - 1) * PART_BYTES
    size = min(PART_BYTES, len(inside(file)) - offset)
    return await objects.put_part(upload, number, str(file), size_bytes=size, offset=offset + 4)


async def test_parts_stored_in_any_order_become_the_object(
    objects: MultipartStore, file: Path
) -> None:
    """Only when it is completed is there an object, and then it is whole."""
    upload = await objects.begin_upload(KEY)
    stored = [await put_part(objects, upload, file, number) for number in (3, 1, 2)]
    assert await objects.list("") == []
    found = await objects.parts(upload)
    assert found == sorted(stored, key=lambda part: part.number)
    await objects.complete_upload(upload, found)
    assert await objects.get(KEY) == inside(file)
    assert await objects.unfinished_uploads("") == []


async def test_etag_of_a_part_is_the_md5_of_its_bytes(objects: MultipartStore, file: Path) -> None:
    """Whoever goes on with an upload tells from it which parts are the right ones."""
    upload = await objects.begin_upload(KEY)
    part = await put_part(objects, upload, file, 3)
    md5 = hashlib.md5(inside(file)[2 * PART_BYTES :]).hexdigest()
    assert part == StoredPart(number=3, size_bytes=7, etag=md5)


async def test_upload_is_completed_with_the_parts_that_are_named(
    objects: MultipartStore, file: Path
) -> None:
    """A part stored again counts as named by its etag; a store may list the first one, too."""
    upload = await objects.begin_upload(KEY)
    stored = [await put_part(objects, upload, file, number) for number in (1, 2)]
    await objects.put_part(upload, 3, str(file), size_bytes=5, offset=0)
    last = await put_part(objects, upload, file, 3)
    assert last in await objects.parts(upload)
    await objects.complete_upload(upload, [*stored, last])
    assert await objects.get(KEY) == inside(file)


async def test_unfinished_uploads_are_found_and_dropped(
    objects: MultipartStore, file: Path
) -> None:
    """What nobody goes on with can be cleared away; dropping it again is fine."""
    first, second = [await objects.begin_upload(KEY) for _ in range(2)]
    other = await objects.begin_upload("jobs/k/shard")
    await put_part(objects, first, file, 3)
    both = sorted((first, second), key=lambda upload: upload.upload_id)
    assert await objects.unfinished_uploads("jobs/j/") == both
    for _ in range(2):
        await objects.abort_upload(first)
    assert await objects.unfinished_uploads("jobs/") == [second, other]


async def test_upload_that_is_gone_is_named(objects: MultipartStore, file: Path) -> None:
    """Dropped by a sweep, it can neither be looked at, nor gone on with, nor completed."""
    upload = await objects.begin_upload(KEY)
    part = await put_part(objects, upload, file, 3)
    await objects.abort_upload(upload)
    with pytest.raises(NotFoundError, match="rank-00000"):
        await objects.parts(upload)
    with pytest.raises(NotFoundError, match="rank-00000"):
        await put_part(objects, upload, file, 1)
    with pytest.raises(NotFoundError, match="rank-00000"):
        await objects.complete_upload(upload, [part])
    assert await objects.list("") == []


class Counting:
    """A pace that counts what it lets through, and ends the upload after so much."""

    chunk_bytes = 1 << 20

    def __init__(self, limit: int) -> None:
        self.count, self.limit = 0, limit

    def wait(self, size_bytes: int) -> None:
        if self.count + size_bytes > self.limit:
            raise RefusedError("enough")
        self.count += size_bytes


async def test_pace_is_asked_for_every_piece_and_may_end_the_upload(
    objects: MultipartStore, file: Path
) -> None:
    """An upload that is cut off leaves no object and no part."""
    whole = Counting(len(inside(file)))
    await objects.put_file(KEY, str(file), size_bytes=whole.limit, pace=whole)
    assert whole.count == whole.limit
    with pytest.raises(RefusedError, match="enough"):
        await objects.put_file("other", str(file), size_bytes=PART_BYTES, pace=Counting(3 << 20))
    upload = await objects.begin_upload(KEY)
    with pytest.raises(RefusedError, match="enough"):
        await objects.put_part(
            upload, 1, str(file), size_bytes=PART_BYTES, offset=0, pace=Counting(3 << 20)
        )
    assert await objects.parts(upload) == []
    assert [info.key for info in await objects.list("")] == [KEY]


async def test_file_that_is_too_short_is_named(objects: MultipartStore, file: Path) -> None:
    """Nothing is stored of it."""
    with pytest.raises(CorruptData, match="slot ends after"):
        await objects.put_file(KEY, str(file), size_bytes=len(inside(file)) + 9)
    assert await objects.list("") == []
