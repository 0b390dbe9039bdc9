"""What it takes to put a rank's state back, from a peer's memory and from its own.

One rank's parameters and AdamW moments. Three kinds, in turns whose order alternates:

``peer``: the agent pulls the snapshot from another process over loopback into the rank's own slot,
checking every tensor as it comes, and says so; beside it the same bytes by sendfile over a bare
socket into memory that is touched already (``peer_restore_over_raw``). What the rank then does with
the slot is the same as for its own and is in ``peer_restore_and_fill_over_raw``; it is another
matter, because the agent pulls while the rank is forked, joins its groups and makes its model.

``own``: agent and rank as after a fault of the rank: the agent finds the slot, the rank copies
every tensor out of it, checks what has arrived, and sets up the optimizer; beside it a plain copy,
by one thread, of the same bytes from the same slot, mapped and touched, into the same tensors,
moments anew as they are in a rank that begins (``own_restore_over_memcpy``). Before each turn the
moments of the last one are dropped and freed memory is given back to the system, so that both make
their pages; ``memcpy_into_touched`` is the same copy where every page is there already.

Run: ``make bench NAME=restore``; it keeps ``peer_restore`` and ``own_restore``.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.snapshot import State
from benchmarks.support import figures
from benchmarks.support.peer_host import ADDRESS, PeerHost, touched, usage
from benchmarks.support.processes import say
from benchmarks.support.quiet import wait_until_quiet

from everstep.agent.peer_protocol import PeerConnection
from everstep.agent.restore import Restorer as AgentRestorer
from everstep.agent.runs import RankRestore, Source, SourceKind
from everstep.agent.store import HostMemory
from everstep.core.system import SystemClock
from everstep.memory.layout import SLOT_COUNT, rank_dir, slot_path
from everstep.memory.reader import SlotReader
from everstep.memory.slot import invalidate, read_preamble
from everstep.memory.writer import Owner
from everstep.train.channel import AgentChannel
from everstep.train.gradients import local_part
from everstep.train.restoring import Plan, Restorer
from everstep.train.snapshots import Snapshots

REPEATS: Final = {50: 15, 390: 6}  # by size [MB]
JOB: Final = "bench"
STEP: Final = 1
THREADS: Final = (1, 2)
MEMORY: Final = Path("/dev/shm")


class Bench:
    """One rank's state, its slot, and a peer that keeps a copy."""

    def __init__(self, folder: Path, host: PeerHost, size_mb: int) -> None:
        torch.set_num_threads(1)  # as in ranks
        self.host = host
        self.state = State(size_mb)
        self.memory = HostMemory(folder / "memory", folder / "own-forgotten.json")
        self._directory = rank_dir(self.memory.root, JOB, 0)
        owner = Owner(job_id=JOB, rank=0, world_size=1, generation=1)
        snapshots = Snapshots(self._directory, owner, self.state.tracked, overlap=False)
        snapshots.prepare()
        slot = snapshots.take(step=STEP, data_state={"position": 0, "skipped": []})
        snapshots.go_on(lambda: None)
        snapshots.wait_whole()
        self.path = slot_path(self._directory, slot)
        preamble = read_preamble(self.path)
        assert preamble is not None
        self.slot_bytes = preamble.slot_bytes
        with PeerConnection(ADDRESS, host.peer_port) as connection:
            connection.push({"job_id": JOB, "generation": 1, "rank": 0}, self.path, preamble)
        shutil.copyfile(self.path, folder / "source")
        self._bare = touched(folder / "bare-near", self.slot_bytes)
        self._executor = ThreadPoolExecutor(4)
        self._agent = AgentRestorer("here", self.memory, None, self._executor)
        self._channel = AgentChannel(None, {}, SystemClock())
        self._generation = 1
        reader = SlotReader(self.path)
        self._made: list[torch.Tensor] = []
        self._plain: list[tuple[torch.Tensor, torch.Tensor, bool]] = []
        for name, tensor in self.state.tracked.tensors():
            entry = reader.entry(name)
            assert entry is not None
            kept = torch.frombuffer(reader.tensor(entry), dtype=tensor.dtype).view(tensor.shape)
            is_made = name.startswith("optimizer.")
            self._plain.append((local_part(tensor).detach(), kept, is_made))

    def raw(self) -> None:
        """Receive the same bytes over a bare socket."""
        self.host.bare_pull(memoryview(self._bare))

    def peer(self) -> Plan:
        """Let the agent bring the snapshot from the peer; it is not here before."""
        for slot in range(SLOT_COUNT):
            invalidate(slot_path(self._directory, slot))
        return self._ask(
            Source(
                kind=SourceKind.PEER_MEMORY,
                host_id="there",
                address=ADDRESS,
                peer_port=self.host.peer_port,
            )
        )

    def own(self, threads: int) -> None:
        """Restore from the slot that is here."""
        self.fill(self._ask(Source(kind=SourceKind.OWN_MEMORY, host_id="here")), threads)

    def fill(self, plan: Plan, threads: int = 1) -> None:
        """Do the rank's part."""
        restorer = Restorer(self._directory, self._channel, threads)
        restorer.restore(plan, self.state.tracked, rank=0, world_size=1)
        restorer.restore_randomness(self.state.tracked)

    def memcpy(self) -> None:
        """Copy the same bytes into the same tensors, moments into new ones."""
        self._made.clear()
        with torch.no_grad():
            for target, kept, is_made in self._plain:
                place = torch.empty_like(target) if is_made else target
                place.copy_(kept)
                self._made.append(place)

    def memcpy_into_touched(self) -> None:
        """Copy the same bytes into tensors that have all their pages."""
        with torch.no_grad():
            for target, kept, _ in self._plain:
                target.copy_(kept)

    def begin_anew(self) -> None:
        """Have no moments, and no pages that once were theirs, as a rank that begins."""
        self._made.clear()
        self.state.optimizer.state.clear()
        ctypes.CDLL(None).malloc_trim(0)

    def _ask(self, source: Source) -> Plan:
        self._generation += 1
        restore = RankRestore(rank=0, sources=(source,))
        answer = asyncio.run(self._agent.restore(JOB, self._generation, STEP, restore))
        assert answer.kind == "slot_ready", answer
        return Plan(slot=answer.slot, step=answer.step, source_kind=answer.source_kind)


def measure(size_mb: int, repeats: int, patience_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of one size: from a peer, and from own memory."""
    folder = Path(tempfile.mkdtemp(prefix="everstep-bench-", dir=MEMORY))
    try:
        with PeerHost(folder, size_mb) as host:
            bench = Bench(folder, host, size_mb)
            return (
                _from_peer(bench, repeats, patience_s),
                _from_own(bench, repeats, patience_s),
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _from_peer(bench: Bench, repeats: int, patience_s: float) -> dict[str, Any]:
    def whole() -> None:
        bench.fill(bench.peer())

    work: dict[str, Callable[[], object]] = {
        "raw": bench.raw,
        "peer": bench.peer,
        "peer_and_fill": whole,
    }
    turns = Turns(work, repeats, patience_s)
    return {
        "slot_bytes": bench.slot_bytes,
        "peer_restore_over_raw": turns.ratio("raw", "peer"),
        "peer_restore_and_fill_over_raw": turns.ratio("raw", "peer_and_fill"),
        **turns.figures(bench.slot_bytes),
    }


def _from_own(bench: Bench, repeats: int, patience_s: float) -> dict[str, Any]:
    bench.peer()  # both slots were made invalid
    work: dict[str, Callable[[], object]] = {
        "memcpy": bench.memcpy,
        "memcpy_into_touched": bench.memcpy_into_touched,
    }
    for threads in THREADS:
        work[f"own_by_{threads}_threads"] = lambda threads=threads: bench.own(threads)
    turns = Turns(work, repeats, patience_s, before=bench.begin_anew)
    return {
        "slot_bytes": bench.slot_bytes,
        "own_restore_over_memcpy": {
            f"{threads}_threads": turns.ratio("memcpy", f"own_by_{threads}_threads")
            for threads in THREADS
        },
        **turns.figures(bench.slot_bytes),
    }


class Turns:
    """Times of several kinds of work, taken in turns."""

    def __init__(
        self,
        work: dict[str, Callable[[], object]],
        repeats: int,
        patience_s: float,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._before = before  # each turn, untimed
        self.wall_s: dict[str, list[float]] = {kind: [] for kind in work}
        self.cpu_s: dict[str, list[float]] = {kind: [] for kind in work}
        self.peak_bytes: dict[str, int] = {}
        self._busy = []
        for kind, once in work.items():  # caches, threads, files
            before = usage()[1]
            once()
            self.peak_bytes[kind] = usage()[1] - before
        for turn in range(repeats):
            if turn % 10 == 0:
                self._busy.append(wait_until_quiet(patience_s))
            for kind in sorted(work, reverse=bool(turn % 2)):
                self._time(kind, work[kind])

    def _time(self, kind: str, work: Callable[[], object]) -> None:
        self._before()
        used, begun = usage()[0], time.perf_counter()
        work()
        self.wall_s[kind].append(time.perf_counter() - begun)
        self.cpu_s[kind].append(usage()[0] - used)

    def ratio(self, under: str, over: str) -> dict[str, Any]:
        """Return one kind's time in units of another's: medians, turn by turn, the fastest."""
        a, b = self.wall_s[under], self.wall_s[over]
        return {
            "of_medians": figures.ratio(figures.summary(a, 6), figures.summary(b, 6)),
            "by_turn": figures.summary([x / y for x, y in zip(a, b, strict=True)]),
            "of_the_fastest": round(min(a) / min(b), 3),
            "processor_time": figures.ratio(
                figures.summary(self.cpu_s[under], 6), figures.summary(self.cpu_s[over], 6)
            ),
        }

    def figures(self, size: int) -> dict[str, Any]:
        """Return what to print of each kind."""
        return {
            **{
                kind: {
                    "ms": figures.summary([1e3 * one for one in self.wall_s[kind]]),
                    "cpu_s_a_gb": figures.summary([s / size * 1e9 for s in self.cpu_s[kind]]),
                    "peak_grown_over_slot": round(self.peak_bytes[kind] / size, 3),
                }
                for kind in self.wall_s
            },
            "others_busy_share_before_turns": self._busy,
        }


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(prog="benchmarks.restore", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(REPEATS), metavar="MB")
    parser.add_argument("--patience", type=float, default=0, help="to wait for quiet [s]")
    options = parser.parse_args()
    before = figures.machine()
    peer: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for size_mb in options.sizes:
        key = f"{size_mb}_mb"
        peer[key], own[key] = measure(size_mb, REPEATS.get(size_mb, 5), options.patience)
        say(f"{size_mb} MB: {peer[key]['peer_restore_over_raw']['of_medians']} of raw TCP")
    for name, found, key in (
        ("peer_restore", peer, "peer_restore_over_raw"),
        ("own_restore", own, "own_restore_over_memcpy"),
    ):
        document = {
            "command": " ".join(["python", "-m", "benchmarks.restore", *sys.argv[1:]]),
            "sizes": found,
            "to_reach": {key: 0.8},
            "versions": figures.versions(["everstep", "torch", "xxhash"]),
            "machine": before,
        }
        figures.save(name, document, keep=options.sizes == list(REPEATS))


if __name__ == "__main__":
    main()
