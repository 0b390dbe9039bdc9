"""One file on its way: whole, by parts, taken up again, tried again, given up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import xxhash
from tests.clocks import ManualClock

from everstep.agent.rate import HostRate
from everstep.agent.shards import BegunFiles
from everstep.agent.transfer import (
    PARTS_MAX,
    TRIES_MAX,
    Range,
    Transfers,
    Upload,
    pause_s,
    ranges_of,
)
from everstep.core.errors import EverstepError, NotFoundError, StoreRefuses, Unavailable
from everstep.core.ports import PartialUpload
from everstep.objectstore.memory import MemoryObjects

KEY = "jobs/j/step-00000020/gen-1/rank-00003.shard"
PART = 1_000
SIZE = 5 * PART + 1


class KilledError(Exception):
    """The agent died here."""


class Store(MemoryObjects):
    """Counts calls, and fails some of them as told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.faults: dict[str, list[EverstepError | KilledError]] = {}
        self.under_way = self.under_way_max = 0

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.faults.get(name):
            raise self.faults[name].pop(0)

    async def put_file(self, key, path, **options):
        self._call("put_file")
        await super().put_file(key, path, **options)

    async def begin_upload(self, key):
        self._call("begin_upload")
        return await super().begin_upload(key)

    async def put_part(self, upload, number, path, **options):
        self._call(f"put_part {number}")
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            return await super().put_part(upload, number, path, **options)
        finally:
            self.under_way -= 1

    async def parts(self, upload):
        self._call("parts")
        return await super().parts(upload)

    async def complete_upload(self, upload, parts):
        self._call("complete_upload")
        await super().complete_upload(upload, parts)
        if self.faults.get("after complete_upload"):
            raise self.faults["after complete_upload"].pop(0)

    async def abort_upload(self, upload):
        self._call("abort_upload")
        await super().abort_upload(upload)


class Bench:
    """A file, a store, and agents that come and go."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.file = directory / "durable"
        self.file.write_bytes(os.urandom(SIZE))
        self.store = Store()
        self.begun = BegunFiles(directory / "uploads")
        self.executor = executor
        self.pauses: list[float] = []

    def agent(self, part_bytes: int = PART) -> Transfers:
        """A new agent on the same directory."""
        return Transfers(
            self.store,
            self.begun,
            HostRate(ManualClock()),
            self.executor,
            part_bytes,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def upload(self) -> Upload:
        """What lies in the file now."""
        data = self.file.read_bytes()
        checksum = xxhash.xxh3_128_hexdigest(data)
        return Upload(key=KEY, path=str(self.file), size_bytes=len(data), checksum=checksum)

    async def stored(self) -> bool:
        """Whether the object is the file, and nothing else is left anywhere."""
        same = await self.store.get(KEY) == self.file.read_bytes()
        return same and not await self.store.unfinished_uploads("") and not self.begun.load(KEY)

    def parts_sent(self) -> list[str]:
        """The calls that sent parts."""
        return sorted(call for call in self.store.calls if call.startswith("put_part"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Nothing is stored."""
    with ThreadPoolExecutor(8) as executor:
        yield Bench(tmp_path, executor)


def test_ranges_cover_the_file_once() -> None:
    """The last part is what is left."""
    assert ranges_of(2 * PART + 1, PART) == (
        Range(number=1, offset=0, size_bytes=PART),
        Range(number=2, offset=PART, size_bytes=PART),
        Range(number=3, offset=2 * PART, size_bytes=1),
    )
    assert len(ranges_of(2 * PART, PART)) == 2


def test_pauses_double_up_to_a_bound_and_differ_by_key_alone() -> None:
    """The same rank does the same every time; a fleet does not come back all at once."""
    pauses = [pause_s(KEY, tried) for tried in range(1, TRIES_MAX)]
    assert pauses == [pause_s(KEY, tried) for tried in range(1, TRIES_MAX)]
    assert all(0.75 * 20 < pause <= 20 for pause in pauses[6:])
    assert pauses[1] == 2 * pauses[0]
    fleet = {round(pause_s(f"rank-{rank}", 1), 4) for rank in range(1_000)}
    assert len(fleet) > 500
    assert all(0.375 <= pause <= 0.5 for pause in fleet)


async def test_small_file_goes_in_one_piece(bench: Bench) -> None:
    """One request."""
    await bench.agent(part_bytes=SIZE).store(bench.upload())
    assert await bench.stored()
    assert bench.store.calls == ["put_file"]


async def test_large_file_goes_by_parts_some_at_a_time(bench: Bench) -> None:
    """Never more at once than the bound."""
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert bench.parts_sent() == [f"put_part {number}" for number in range(1, 7)]
    assert bench.store.under_way_max == PARTS_MAX


@pytest.mark.parametrize(
    "call",
    ["begin_upload", *(f"put_part {number}" for number in range(1, 7)), "complete_upload"],
)
async def test_agent_killed_at_a_call_is_followed_by_one_that_sends_only_the_rest(
    bench: Bench, call: str
) -> None:
    """What the store has of these very bytes is not sent twice."""
    bench.store.faults[call] = [KilledError()]
    with pytest.raises((KilledError, ExceptionGroup)):
        await bench.agent().store(bench.upload())
    known = bench.begun.load(KEY)
    there = []
    if known is not None:
        there = await bench.store.parts(PartialUpload(key=KEY, upload_id=known.upload_id))
    bench.store.calls.clear()
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert len(bench.parts_sent()) == 6 - len(there)


async def test_completion_whose_answer_was_lost_is_not_done_again(bench: Bench) -> None:
    """The upload is gone because it is through: the object is there, with its size."""
    bench.store.faults["after complete_upload"] = [KilledError()]
    with pytest.raises(KilledError):
        await bench.agent().store(bench.upload())
    bench.store.calls.clear()
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert bench.store.calls == ["parts"]
    bench.store.faults["after complete_upload"] = [Unavailable("timed out")]
    await bench.agent().store(bench.upload())
    assert await bench.stored()


async def test_parts_of_other_bytes_are_not_taken_for_these(bench: Bench) -> None:
    """A part that is stored and differs from the slot is sent again."""
    bench.store.faults["complete_upload"] = [KilledError()]
    with pytest.raises(KilledError):
        await bench.agent().store(bench.upload())
    known = bench.begun.load(KEY)
    assert known is not None
    begun = PartialUpload(key=KEY, upload_id=known.upload_id)
    other = bench.file.with_name("other")
    other.write_bytes(bytes(PART))
    await bench.store.put_part(begun, 2, str(other), size_bytes=PART, offset=0)
    bench.store.calls.clear()
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert bench.parts_sent() == ["put_part 2"]


async def test_upload_of_another_content_is_dropped_and_begun_anew(bench: Bench) -> None:
    """The same step was stored differently before: nothing of that is used."""
    bench.store.faults["complete_upload"] = [KilledError()]
    with pytest.raises(KilledError):
        await bench.agent().store(bench.upload())
    bench.file.write_bytes(os.urandom(SIZE))
    await bench.agent().store(bench.upload())
    assert await bench.stored()


async def test_upload_that_somebody_dropped_is_begun_anew(bench: Bench) -> None:
    """A sweep that was wrong costs a second sending, and no checkpoint."""
    bench.store.faults["put_part 3"] = [NotFoundError("dropped"), NotFoundError("dropped")]
    await bench.agent().store(bench.upload())
    assert bench.store.calls.count("begin_upload") == 3
    [*left] = await bench.store.unfinished_uploads("")
    assert len(left) == 2  # in the test's store they still are
    assert await bench.store.get(KEY) == bench.file.read_bytes()


@pytest.mark.parametrize("call", ["begin_upload", "put_part 2", "complete_upload"])
async def test_store_that_is_away_is_asked_again_after_a_pause(bench: Bench, call: str) -> None:
    """Each time after twice as long; only that request is made again."""
    bench.store.faults[call] = [Unavailable("SlowDown") for _ in range(3)]
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert bench.pauses == [pause_s(KEY, tried) for tried in (1, 2, 3)]
    assert bench.store.calls.count(call) == 4


async def test_store_that_stays_away_ends_the_upload_in_bounded_tries(bench: Bench) -> None:
    """The error is the store's own, and names what it was about."""
    bench.store.faults["put_part 2"] = [Unavailable(f"{KEY}: away") for _ in range(TRIES_MAX)]
    with pytest.raises(Unavailable, match="rank-00003"):
        await bench.agent().store(bench.upload())
    assert bench.store.calls.count("put_part 2") == TRIES_MAX


async def test_store_that_refuses_is_not_asked_again(bench: Bench) -> None:
    """Keys, quota and clocks do not mend themselves within a minute."""
    bench.store.faults["put_part 2"] = [StoreRefuses("full")]
    with pytest.raises(StoreRefuses, match="full"):
        await bench.agent().store(bench.upload())
    assert bench.pauses == []
    assert bench.store.calls.count("put_part 2") == 1


async def test_given_up_upload_leaves_nothing_in_the_store_or_on_disk(bench: Bench) -> None:
    """And when the store cannot be told, the file is gone all the same: the sweep finds it."""
    for fault in ([], [StoreRefuses("keys")]):
        bench.store.faults |= {"put_part 2": [StoreRefuses("full")], "abort_upload": [*fault]}
        agent = bench.agent()
        with pytest.raises(StoreRefuses, match="full"):
            await agent.store(bench.upload())
        await agent.drop(KEY)
        assert bench.begun.load(KEY) is None
        assert len(await bench.store.unfinished_uploads("")) == len(fault)


async def test_cancelled_upload_can_be_gone_on_with(bench: Bench) -> None:
    """An agent that ends in an orderly way leaves as much as one that is killed."""
    reached, never = asyncio.Event(), asyncio.Event()
    complete = bench.store.complete_upload

    async def stands_still(upload, parts):
        reached.set()
        await never.wait()

    bench.store.complete_upload = stands_still
    task = asyncio.create_task(bench.agent().store(bench.upload()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.store.complete_upload = complete
    bench.store.calls.clear()
    await bench.agent().store(bench.upload())
    assert await bench.stored()
    assert bench.parts_sent() == []
