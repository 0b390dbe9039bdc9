"""What comparing state costs: on a rank, each step, and at the monitor, for all ranks' steps.

A rank folds the checksums that its snapshot has anyway. Timed is processor time of the calls that
are made for it, beside what the checksums themselves and the snapshot's header take. The monitor
takes the messages of 2,048 hosts with 8 ranks each. Run: ``make bench NAME=fingerprints``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.support import figures

from everstep.core.placement import Layout
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.monitor.detectors.corruption_course import CorruptionCourse
from everstep.train.fingerprints import Fingerprints
from everstep.wire.v1.agents_pb2 import Fingerprint, RankStep, StepMetrics

# Of a snapshot: the demo's rank, a stage of ten layers, a whole model of eighty.
TENSORS: Final = (72, 300, 2_400)
TENSOR_BYTES: Final = 16 * 1024
REPEATS: Final = 200
LAYOUT: Final = Layout(pp=8, dp_replicate=4, dp_shard=64, tp=8)
CHIPS: Final = 8
STEPS: Final = 20


def cpu_ms(work: Callable[[int], Any], repeats: int) -> dict[str, Any] | None:
    """Return the processor time of this thread that a call takes [ms]."""
    taken = []
    for number in range(1, repeats + 1):
        begun_ns = time.thread_time_ns()
        work(number)
        taken.append((time.thread_time_ns() - begun_ns) / 1e6)
    return figures.summary(taken, digits=4)


def on_a_rank(count: int, directory: Path) -> dict[str, Any]:
    """Measure one rank's snapshots of so many tensors."""
    names = [f"model.layers.{n}.weight" for n in range(count)]
    specs = [TensorSpec(name=n, dtype="uint8", shape=(), bytes=TENSOR_BYTES) for n in names]
    owner = Owner(job_id="j", rank=0, world_size=LAYOUT.world_size, generation=1)
    writer = SlotWriter(directory / f"slot-{count}", owner, specs)
    prints = Fingerprints(LAYOUT, 0, 1)
    prints.plan(names, {name: torch.empty(0) for name in names})

    def commit(step: int) -> None:
        writer.commit(step=step, data_state={}, objects={})

    def fold(step: int) -> None:
        prints.begin(step)
        prints.take(step, writer.checksums)
        assert prints.word is not None
        prints.told()

    committed = cpu_ms(commit, REPEATS)
    folded = cpu_ms(fold, REPEATS)
    writer.close()
    return {
        "tensors": count,
        "state_mb": round(count * TENSOR_BYTES / 1e6, 1),
        "checksums_and_header_cpu_ms": committed,
        "fingerprints_cpu_ms": folded,
        "fingerprints_over_checksums": figures.ratio(folded, committed),
    }


def at_the_monitor() -> dict[str, Any]:
    """Measure the messages of all hosts, and one step that differs on a rank."""
    course = CorruptionCourse()
    hosts = [f"h{rank // CHIPS}" for rank in range(LAYOUT.world_size)]
    course.begin(1, LAYOUT, hosts)
    course.resumed(1, 0)

    def step(number: int, *, odd: bool = False) -> int:
        said = 0
        for first in range(0, LAYOUT.world_size, CHIPS):
            message = _message(number, first, odd=odd)
            begun_ns = time.thread_time_ns()
            said += len(course.told(1, message.ranks))
            taken[0] += time.thread_time_ns() - begun_ns
        return said

    taken = [0]
    equal = []
    for number in range(1, STEPS + 1):
        taken[0] = 0
        assert step(number) == 0
        equal.append(taken[0] / 1e6)
    taken[0] = 0
    assert step(STEPS + 1, odd=True) == 1
    return {
        "ranks": LAYOUT.world_size,
        "hosts": LAYOUT.world_size // CHIPS,
        "step_cpu_ms": figures.summary(equal, digits=1),
        "step_that_differs_cpu_ms": round(taken[0] / 1e6, 1),
    }


def _message(step: int, first: int, *, odd: bool) -> StepMetrics:
    ranks = [
        RankStep(
            rank=rank,
            step=step,
            compared_step=step,
            verified_step=step - 1,
            fingerprints=[
                Fingerprint(over=1, value=step + (odd and rank == CHIPS)),
                Fingerprint(over=5, value=step),
            ],
        )
        for rank in range(first, first + CHIPS)
    ]
    return StepMetrics.FromString(StepMetrics(ranks=ranks).SerializeToString())


def main() -> None:
    """Measure, and print."""
    argparse.ArgumentParser(prog="benchmarks.fingerprints", description=__doc__).parse_args()
    before = figures.machine()
    torch.set_num_threads(1)
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        ranks = [on_a_rank(count, Path(directory)) for count in TENSORS]
    figures.save(
        "fingerprints",
        {"on_a_rank": ranks, "at_the_monitor": at_the_monitor(), "machine": before},
        keep=True,
    )


if __name__ == "__main__":
    main()
