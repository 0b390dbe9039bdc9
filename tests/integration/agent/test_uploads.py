"""Uploads by real agents: gone on with by the next one, held to a rate, small in memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.integration.agent import harness
from tests.integration.agent.harness import ROOT, hosts_on, new_plane, placed, spec_json, start_all
from tests.integration.agent.test_lifecycle import digest_after
from tests.waiting import until

from everstep.agent.rate import HostRate, piece_bytes
from everstep.agent.runs import RankRun
from everstep.agent.shards import BegunFiles, ShardFiles
from everstep.agent.store import HostMemory
from everstep.agent.transfer import Transfers
from everstep.agent.upload import Uploads
from everstep.core.system import SystemClock
from everstep.memory import layout
from everstep.memory.control import Control
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.objectstore.memory import MemoryObjects
from everstep.wire.v1.agents_pb2 import SaveRanks
from everstep.wire.v1.common_pb2 import CommandReply

PART_BYTES = 5 << 20
SIZE = 2 * PART_BYTES + 1_000  # three parts


class StandingObjects(MemoryObjects):
    """Stands still before it completes an upload, until it may; notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.reached = asyncio.Event()
        self.parts_sent: list[int] = []
        self.pieces: set[int] = set()

    async def put_part(self, upload, number, path, *, pace=None, **where):
        self.parts_sent.append(number)
        self.pieces.add(pace.chunk_bytes)
        return await super().put_part(upload, number, path, pace=pace, **where)

    async def complete_upload(self, upload, parts):
        self.reached.set()
        await self.may.wait()
        await super().complete_upload(upload, parts)


def by_parts(host):
    """Let the host's agent send parts of the smallest size."""
    host.settings = host.settings.model_copy(update={"upload_part_bytes": PART_BYTES})


async def save(plane):
    """Ask for a checkpoint, once the rank steps."""
    await plane.step_reached(1, 2)
    await plane.ask("h1", SaveRanks(job_id=harness.JOB, generation=1), CommandReply)


async def test_next_agent_goes_on_with_an_upload_and_sends_no_part_twice(tmp_path):
    """What lies in shared memory is adopted, and what is stored of it is found in the store."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        by_parts(host)
        plane.objects = objects = StandingObjects()
        spec = spec_json(bytes=SIZE, step_ms=20)
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, spec)
            await save(plane)
            await objects.reached.wait()
        assert sorted(objects.parts_sent) == [1, 2, 3]
        objects.parts_sent.clear()
        objects.may.set()
        async with host.up(plane):
            report = await until(lambda: plane.shards and plane.shards[0])
            assert objects.parts_sent == []
            assert digest_after(report.step) in await objects.get(report.shards[0].uri)
            assert await objects.unfinished_uploads("") == []


async def test_fence_drops_the_upload_of_an_older_generation(tmp_path):
    """Its parts would only lie around: the registry refuses what is late."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        by_parts(host)
        plane.objects = objects = StandingObjects()
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, spec_json(bytes=SIZE, step_ms=20))
            await save(plane)
            await objects.reached.wait()
            await plane.stop("h1", 2)

            async def dropped() -> bool:
                return not await objects.unfinished_uploads("")

            await until(dropped)
        assert await objects.list("") == []
        assert list((host.settings.run_dir / "uploads").iterdir()) == []


async def test_limit_of_the_spec_holds_the_hosts_uploads(tmp_path):
    """Pieces are as small as the rate asks for."""
    limit = 4_000_000
    spec = json.loads(spec_json(bytes=SIZE, step_ms=20))
    spec["checkpoint"] = {"upload_bytes_per_s_max": limit}
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        by_parts(host)
        plane.objects = objects = StandingObjects()
        objects.may.set()
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, json.dumps(spec))
            await save(plane)
            await until(lambda: plane.shards)
        assert objects.pieces == {piece_bytes(limit)}


class CountedObjects(MemoryObjects):
    """Counts the files that were stored whole."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []

    async def put_file(self, key, path, **how):
        self.files.append(key)
        await super().put_file(key, path, **how)


async def test_durable_step_that_is_told_again_once_stored_is_left_alone(tmp_path):
    """A rank tells an agent that came back what that one had found by itself, and stored.

    By then the slot is the rank's again, to write the next durable snapshot into.
    """
    directory = layout.rank_dir(tmp_path / "memory", harness.JOB, 0)
    control = Control(layout.control_path(directory))
    owner = Owner(job_id=harness.JOB, rank=0, world_size=1, generation=1)
    state = TensorSpec(name="state", dtype="uint8", shape=(3,), bytes=3)
    writer = SlotWriter(layout.durable_path(directory), owner, [state])
    writer.begin()
    writer.commit(step=4, data_state={"position": 4}, objects={})
    control.durable_busy = True
    rank = RankRun(rank=0, control=control)
    memory = HostMemory(tmp_path / "memory", tmp_path / "forgotten.json")
    objects, clock = CountedObjects(), SystemClock()
    with ThreadPoolExecutor(2) as executor:
        begun = BegunFiles(tmp_path / "uploads")
        transfers = Transfers(objects, begun, HostRate(clock), executor, PART_BYTES)
        files = ShardFiles(tmp_path / "shards")
        async with new_plane() as plane, asyncio.TaskGroup() as group:
            uploads = Uploads(
                "h1", memory, transfers, files, clock, executor, group.create_task, lambda _: 0
            )
            reporting = group.create_task(uploads.run(plane.bus))
            for _ in range(2):
                uploads.add(harness.JOB, 1, rank, frozenset({0}))
                assert await uploads.drained(harness.JOB, 10)
                assert not control.durable_busy
            reporting.cancel()
    assert objects.files == [plane.shards[0].shards[0].uri]
    assert len(plane.shards) == 1


MEASURE = """
import asyncio, json, sys
from benchmarks.upload import ours, peak_bytes
from pathlib import Path
slot, access = Path(sys.argv[1]), json.loads(sys.argv[2])
small, large = slot.with_name("small"), slot
asyncio.run(ours(small, "small", access))
before = peak_bytes()
asyncio.run(ours(large, "large", access))
print(peak_bytes() - before)
"""


async def test_upload_of_a_large_shard_takes_no_memory_to_speak_of(tmp_path, servers):
    """Three hundred megabytes go through buffers of a few."""
    from benchmarks.upload import make_slot

    make_slot(tmp_path / "small", 1)
    make_slot(tmp_path / "large", 300)
    credentials = servers.servers.credentials
    access = {
        "endpoint": servers.servers.s3_endpoint,
        "access_key": credentials.s3_access_key,
        "secret_key": credentials.s3_secret_key,
    }
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "large"), json.dumps(access)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    assert int(done.stdout) < 30_000_000
