"""What every object store keeps: S3 and memory under the same rules."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everstep.core.errors import NotFoundError
from everstep.core.ports import ObjectInfo, ObjectStore
from everstep.core.system import RandomIds
from everstep.objectstore.memory import MemoryObjects
from everstep.objectstore.s3 import S3Store


@pytest.fixture(params=["memory", "s3"])
async def objects(request: pytest.FixtureRequest) -> AsyncIterator[ObjectStore]:
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
async def test_stored_object_is_returned_unchanged(objects: ObjectStore, size_bytes: int) -> None:
    """Whole, and as a stream of chunks."""
    data = os.urandom(size_bytes)
    await objects.put("a/b.shard", data)
    assert await objects.get("a/b.shard") == data
    chunks = [chunk async for chunk in objects.chunks("a/b.shard", chunk_bytes=1_000_000)]
    assert b"".join(chunks) == data
    assert all(0 < len(chunk) <= 1_000_000 for chunk in chunks)


async def test_second_put_replaces_the_object(objects: ObjectStore) -> None:
    """The newest bytes win, whatever their size."""
    await objects.put("a", b"long long long")
    await objects.put("a", b"short")
    assert await objects.get("a") == b"short"


async def test_part_of_a_file_is_stored(objects: ObjectStore, tmp_path: Path) -> None:
    """An upload may leave out what lies before and behind."""
    path = tmp_path / "slot"
    path.write_bytes(b"headBODYtail")
    await objects.put_file("a", str(path), size_bytes=4, offset=4)
    assert await objects.get("a") == b"BODY"
    await objects.put_file("b", str(path), size_bytes=12)
    assert await objects.get("b") == b"headBODYtail"


async def test_missing_object_is_named(objects: ObjectStore) -> None:
    """Whoever reads a checkpoint learns which shard is gone."""
    with pytest.raises(NotFoundError, match="jobs/j/rank-00007"):
        await objects.get("jobs/j/rank-00007.shard")
    with pytest.raises(NotFoundError, match="jobs/j/rank-00007"):
        async for _ in objects.chunks("jobs/j/rank-00007.shard", chunk_bytes=10):
            pass


async def test_list_returns_keys_under_a_prefix_sorted(objects: ObjectStore) -> None:
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


async def test_deleted_object_is_gone(objects: ObjectStore) -> None:
    """Deleting again is fine."""
    await objects.put("a", b"x")
    await objects.delete("a")
    await objects.delete("a")
    assert await objects.list("") == []
    with pytest.raises(NotFoundError):
        await objects.get("a")
