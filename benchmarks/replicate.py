"""What a copy of a snapshot in a peer's memory costs, against bare TCP of the same bytes.

Two processes over loopback, in turns whose order alternates: a push as agents make it (announced,
sent by sendfile from shared memory, received into the replica's slot, every tensor checked, made
valid, acknowledged), and the same file sent by sendfile into memory that is touched already,
acknowledged with one byte. Of both sides: wall time, processor time, peak memory.
``replicate_over_raw`` is ours in units of bare throughput. Run: ``make bench NAME=replicate``.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.support import figures
from benchmarks.support.peer_host import ADDRESS, PeerHost, usage
from benchmarks.support.processes import say
from benchmarks.support.quiet import wait_until_quiet

from everstep.agent.peer_protocol import PeerConnection
from everstep.memory.slot import read_preamble
from everstep.memory.writer import Owner, SlotWriter, TensorSpec

REPEATS: Final = {5: 60, 50: 30, 390: 8}  # by size [MB]: a demo's rank, a small one, 400B on 16k
TENSORS: Final = 288  # 96 parameters with two moments each, as benchmarks.snapshot
OWNER: Final = Owner(job_id="bench", rank=0, world_size=1, generation=1)
MEMORY: Final = Path("/dev/shm")


class Snapshot:
    """A slot file that is a new step each turn."""

    def __init__(self, path: Path, size_mb: int) -> None:
        self.path = path
        count = size_mb * 1_000_000 // (4 * TENSORS)
        specs = [
            TensorSpec(name=f"t{number}", dtype="float32", shape=(count,), bytes=4 * count)
            for number in range(TENSORS)
        ]
        self._writer = SlotWriter(path, OWNER, specs)
        self._step = 0
        for number, buffer in enumerate(self._writer.buffers.values()):
            buffer[:] = bytes([number % 251]) * len(buffer)

    def next(self) -> None:
        """Become the next step's."""
        self._step += 1
        self._writer.begin()
        self._writer.commit(step=self._step, data_state={}, objects={})


def measure(size_mb: int, repeats: int, patience_s: float) -> dict[str, Any]:
    """Return the figures of one size."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-bench-", dir=MEMORY))
    try:
        with PeerHost(folder, size_mb) as host:
            return _measure(host, Snapshot(folder / "slot-0", size_mb), repeats, patience_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(host: PeerHost, snapshot: Snapshot, repeats: int, patience_s: float) -> dict[str, Any]:
    head = {"job_id": OWNER.job_id, "generation": OWNER.generation, "rank": OWNER.rank}
    connection = PeerConnection(ADDRESS, host.peer_port)
    turns = {kind: Turns(host) for kind in ("ours", "raw")}

    def push() -> None:
        preamble = read_preamble(snapshot.path)
        assert preamble is not None
        connection.push(head, snapshot.path, preamble)

    def raw() -> None:
        preamble = read_preamble(snapshot.path)
        assert preamble is not None
        host.bare_push(snapshot.path, preamble.slot_bytes)

    work: dict[str, Callable[[], None]] = {"ours": push, "raw": raw}
    snapshot.next()
    raw()
    before = usage()[1], host.usage()[1]
    for _ in range(2):  # both slots of the replica come to be
        snapshot.next()
        push()
    busy = []
    for turn in range(repeats):
        if turn % 10 == 0:
            busy.append(wait_until_quiet(patience_s))
        snapshot.next()
        for kind in sorted(work, reverse=bool(turn % 2)):
            turns[kind].add(work[kind])
    preamble = read_preamble(snapshot.path)
    assert preamble is not None
    size = preamble.slot_bytes
    peak = usage()[1] - before[0], host.usage()[1] - before[1]
    connection.close()
    ours, bare = turns["ours"], turns["raw"]
    return {
        "slot_bytes": size,
        "replicate_over_raw": round(bare.median_s / ours.median_s, 3),
        "replicate_over_raw_by_turn": figures.summary(
            [raw_s / our_s for raw_s, our_s in zip(bare.wall_s, ours.wall_s, strict=True)]
        ),
        "replicate_over_raw_of_the_fastest": round(min(bare.wall_s) / min(ours.wall_s), 3),
        "processor_time_raw_over_ours": round(bare.cpu_s / ours.cpu_s, 3),
        "ours": ours.figures(size),
        "raw": bare.figures(size),
        "sender_peak_grown_over_slot": round(peak[0] / size, 3),
        "receiver_peak_grown_over_slot": round(peak[1] / size, 3),  # it holds two slots
        "others_busy_share_before_turns": busy,
    }


class Turns:
    """Times of one kind of transfer."""

    def __init__(self, host: PeerHost) -> None:
        self._host = host
        self.wall_s: list[float] = []
        self._near_s: list[float] = []
        self._far_s: list[float] = []

    def add(self, work: Callable[[], None]) -> None:
        """Do it once more."""
        near, far = usage()[0], self._host.usage()[0]
        begun = time.perf_counter()
        work()
        self.wall_s.append(time.perf_counter() - begun)
        self._near_s.append(usage()[0] - near)
        self._far_s.append(self._host.usage()[0] - far)

    @property
    def median_s(self) -> float:
        """Of the wall times."""
        return median(self.wall_s)

    @property
    def cpu_s(self) -> float:
        """Of both sides, the median turn's."""
        return median(near + far for near, far in zip(self._near_s, self._far_s, strict=True))

    def figures(self, size: int) -> dict[str, Any]:
        """Return what to print."""
        return {
            "ms": figures.summary([1e3 * one for one in self.wall_s]),
            "gb_a_second": figures.summary([size / one / 1e9 for one in self.wall_s]),
            "near_cpu_s_a_gb": round(median(self._near_s) / size * 1e9, 3),
            "far_cpu_s_a_gb": round(median(self._far_s) / size * 1e9, 3),
        }


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(prog="benchmarks.replicate", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(REPEATS), metavar="MB")
    parser.add_argument("--patience", type=float, default=0, help="to wait for quiet [s]")
    options = parser.parse_args()
    before = figures.machine()
    sizes = {}
    for size_mb in options.sizes:
        found = measure(size_mb, REPEATS.get(size_mb, 10), options.patience)
        sizes[f"{size_mb}_mb"] = found
        say(f"{size_mb} MB: {found['replicate_over_raw']} of raw TCP")
    figures.save(
        "replicate",
        {
            "sizes": sizes,
            "to_reach": {"replicate_over_raw": 0.8},
            "versions": figures.versions(["everstep", "xxhash", "msgspec"]),
            "machine": before,
        },
        keep=options.sizes == list(REPEATS),
    )


if __name__ == "__main__":
    main()
