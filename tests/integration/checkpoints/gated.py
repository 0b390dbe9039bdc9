"""What the wrapped processes use: the real adapters, with a point before and after each call."""

from __future__ import annotations

from contextlib import asynccontextmanager

from tests.integration.checkpoints.gate import passes, passes_from_a_thread

from everstep.bus.nats import NatsBus
from everstep.objectstore.s3 import S3Store


class GatedPace:
    """Asks in the middle of a part."""

    def __init__(self, pace, point: str) -> None:
        self._pace = pace
        self._point = point
        self._pieces = 0

    @property
    def chunk_bytes(self) -> int:
        return self._pace.chunk_bytes

    def wait(self, size_bytes: int) -> None:
        self._pace.wait(size_bytes)
        self._pieces += 1
        if self._pieces == 2:
            passes_from_a_thread(self._point)


class GatedObjects:
    """Implements ``MultipartStore``; points are named after the call and what it is about."""

    def __init__(self, objects: S3Store, party: str) -> None:
        self._objects = objects
        self._party = party

    async def _through(self, name: str, work):
        await passes(f"{self._party} before {name}")
        result = await work
        await passes(f"{self._party} after {name}")
        return result

    async def put(self, key, data):
        await self._through(f"put {_last(key)}", self._objects.put(key, data))

    async def put_file(self, key, path, *, size_bytes, offset=0, pace=None):
        gated = GatedPace(pace, f"{self._party} within put_file")
        await self._through(
            "put_file",
            self._objects.put_file(key, path, size_bytes=size_bytes, offset=offset, pace=gated),
        )

    async def get(self, key):
        return await self._through(f"get {_last(key)}", self._objects.get(key))

    async def chunks(self, key, *, chunk_bytes):
        await passes(f"{self._party} before chunks")
        async for chunk in self._objects.chunks(key, chunk_bytes=chunk_bytes):
            yield chunk
        await passes(f"{self._party} after chunks")

    async def list(self, prefix):
        what = "root" if prefix == "jobs/" else _last(prefix) or "folder"
        return await self._through(f"list {what}", self._objects.list(prefix))

    async def delete(self, key):
        await self._through(f"delete {_last(key)}", self._objects.delete(key))

    async def begin_upload(self, key):
        return await self._through("begin_upload", self._objects.begin_upload(key))

    async def put_part(self, upload, number, path, *, size_bytes, offset, pace=None):
        gated = GatedPace(pace, f"{self._party} within put_part {number}")
        return await self._through(
            f"put_part {number}",
            self._objects.put_part(
                upload, number, path, size_bytes=size_bytes, offset=offset, pace=gated
            ),
        )

    async def parts(self, upload):
        return await self._through("parts", self._objects.parts(upload))

    async def complete_upload(self, upload, parts):
        await self._through("complete_upload", self._objects.complete_upload(upload, parts))

    async def abort_upload(self, upload):
        await self._through("abort_upload", self._objects.abort_upload(upload))

    async def unfinished_uploads(self, prefix):
        return await self._through("unfinished_uploads", self._objects.unfinished_uploads(prefix))


def gated_s3(party: str):
    """A stand-in for the class ``S3Store`` that opens a wrapped one."""

    class Gated:
        @staticmethod
        @asynccontextmanager
        async def open(**settings):
            async with S3Store.open(**settings) as objects:
                yield GatedObjects(objects, party)

    return Gated


class GatedBus:
    """A bus that asks before and after a report."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    def __getattr__(self, name):
        return getattr(self._bus, name)

    async def request(self, subject, data, **options):
        if not subject.endswith(".report_shards"):
            return await self._bus.request(subject, data, **options)
        await passes("agent before report")
        reply = await self._bus.request(subject, data, **options)
        await passes("agent after report")
        return reply

    @staticmethod
    @asynccontextmanager
    async def open(url, **options):
        """Open a wrapped one."""
        async with NatsBus.open(url, **options) as bus:
            yield GatedBus(bus)


def gate_appends(store_class, party: str) -> None:
    """Let every append of events ask, by the type of the first event."""
    append = store_class.append

    async def gated(self, stream, expected_version, events, **options):
        kind = events[0].type.partition(".")[0] if events else ""
        if not stream.startswith("checkpoint-") or not kind:
            return await append(self, stream, expected_version, events, **options)
        await passes(f"{party} before append {kind}")
        stored = await append(self, stream, expected_version, events, **options)
        await passes(f"{party} after append {kind}")
        return stored

    store_class.append = gated


def _last(key: str) -> str:
    return key.rpartition("/")[2]
