"""What a snapshot costs a training step: overlapped and not, against one plain copy of the state.

One rank's parameters and AdamW moments, as large as named. In turns, in one process: a plain copy
of the same bytes into memory that is touched already, and the snapshot. Overlapped, the time is
what training waits for at the step's end and before the next optimizer step, with a forward and
backward pass's worth of arithmetic in between; what the copy costs that arithmetic is beside it.
``torch.distributed.checkpoint.async_save`` of the same state into the same memory file system
stands beside it: the time until it returns. Each kind runs in a process of its own, which also
tells its peak memory. Run: ``make bench NAME=snapshot``, or ``make bench-gpu`` for state that lies
on an accelerator: the plain copy then goes into locked memory, and the pass is the device's.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.support import figures
from torch import Tensor, nn

from everstep.memory.layout import slot_path
from everstep.memory.reader import verify_slot
from everstep.memory.writer import Owner
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState

SIZES_MB: Final = (50, 390, 2_000)  # a small rank; 400B x 16 bytes on 16,384 chips; a dense one
KINDS: Final = ("overlapped", "at_once", "async_save")
TENSORS: Final = 96  # parameters of a rank of the mission's model: 8 layers and some
REPEATS: Final = 9
COPIES_OF_COMPUTE: Final = 4.0  # a pass takes at least so many times as long as the plain copy
PASS_S_MIN: Final = 0.05
MEMORY: Final = Path("/dev/shm")
CPU: Final = torch.device("cpu")


class State:
    """Parameters with moments, ``size_mb`` in all."""

    def __init__(self, size_mb: int, device: torch.device = CPU) -> None:
        rows = size_mb * 1_000_000 // (3 * TENSORS * 4 * 1024)
        self.device = device
        self.model = nn.ParameterList(
            torch.randn(rows, 1024, device=device) for _ in range(TENSORS)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        for parameter in self.model:
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        for parameter in self.model:
            parameter.grad = None
        self.tracked = TrackedState(device, {"model": self.model, "optimizer": self.optimizer})
        self.tensors = [tensor for _, tensor in self.tracked.tensors()]
        self.bytes = sum(one.numel() * one.element_size() for one in self.tensors)

    def nested(self) -> dict[str, Any]:
        """Return what people give to ``async_save``."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def measure(kind: str, size_mb: int, device: torch.device) -> dict[str, Any]:
    """Return the times [ms] of one kind and of the plain copy beside it."""
    torch.set_num_threads(1)
    state = State(size_mb, device)
    locked = device.type == "cuda"
    places = [torch.zeros(one.shape, dtype=one.dtype, pin_memory=locked) for one in state.tensors]
    folder = Path(tempfile.mkdtemp(prefix="everstep-bench-", dir=MEMORY))
    try:
        snapshot = {
            "overlapped": lambda: _ours(state, folder, overlap=True),
            "at_once": lambda: _ours(state, folder, overlap=False),
            "async_save": lambda: _theirs(state, folder),
        }[kind]()
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        copies, stalls, passes = [], [], []
        work = _Pass(_time(lambda: _copy(places, state.tensors), device), device)
        snapshot(work)  # caches, thread, files
        for _ in range(REPEATS):
            copies.append(_time(lambda: _copy(places, state.tensors), device))
            alone = work.run()
            stall, beside = snapshot(work)
            stalls.append(stall)
            passes.append(beside / alone if beside else 1.0)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    over = [stall / copy for stall, copy in zip(stalls, copies, strict=True)]
    return {
        "state_bytes": state.bytes,
        "plain_copy_ms": figures.summary([1e3 * one for one in copies]),
        "stall_ms": figures.summary([1e3 * one for one in stalls]),
        "stall_over_copy": figures.summary(over, 4),
        "pass_beside_over_alone": figures.summary(passes),
        "peak_grown_over_state": round(grown_kib * 1024 / state.bytes, 3),
    }


class _Pass:
    """Arithmetic that takes several times as long as a copy, in memory of its own."""

    def __init__(self, copy_s: float, device: torch.device) -> None:
        side = 512 if device.type == "cpu" else 4096
        self._device = device
        self._left = torch.randn(side, side, device=device)
        self._right = torch.randn(side, side, device=device)
        one = min(_time(self._once, device) for _ in range(5))
        self._count = max(1, round(max(COPIES_OF_COMPUTE * copy_s, PASS_S_MIN) / one))

    def _once(self) -> None:
        torch.mm(self._left, self._right)

    def run(self) -> float:
        """Return how long it took [s]."""
        return _time(lambda: [self._once() for _ in range(self._count)], self._device)


def _ours(state: State, folder: Path, *, overlap: bool) -> Callable[[_Pass], tuple[float, float]]:
    owner = Owner(job_id="bench", rank=0, world_size=1, generation=1)
    snapshots = Snapshots(folder, owner, state.tracked, overlap=overlap)
    snapshots.prepare()
    step = 0

    def take(work: _Pass) -> tuple[float, float]:
        nonlocal step
        step += 1
        _synchronize(state.device)
        begun = time.perf_counter()
        slot = snapshots.take(step=step, data_state={})
        snapshots.go_on(lambda: None)
        stall = time.perf_counter() - begun
        beside = work.run()
        stall += _time(snapshots.settle)
        snapshots.wait_whole()
        if step == 1:
            verify_slot(slot_path(folder, slot))
        return stall, beside

    return take


def _theirs(state: State, folder: Path) -> Callable[[_Pass], tuple[float, float]]:
    from torch.distributed import checkpoint

    step = 0

    def take(work: _Pass) -> tuple[float, float]:
        nonlocal step
        step += 1
        target = folder / str(step)
        _synchronize(state.device)
        begun = time.perf_counter()
        future = checkpoint.async_save(state.nested(), checkpoint_id=target, no_dist=True)
        stall = time.perf_counter() - begun
        beside = work.run()
        future.result()  # the next save would wait for it; training does not
        shutil.rmtree(target)
        return stall, beside

    return take


def _copy(places: list[Tensor], sources: list[Tensor]) -> None:
    with torch.no_grad():
        torch._foreach_copy_(places, sources, non_blocking=True)


def _time(work: Callable[[], object], device: torch.device = CPU) -> float:
    _synchronize(device)
    begun = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - begun


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure every kind at every size, or one of them for the parent process."""
    parser = argparse.ArgumentParser(prog="benchmarks.snapshot", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES_MB), metavar="MB")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has no GPU that PyTorch can use")
    if options.one:
        found = measure(options.one, options.sizes[0], torch.device(options.device))
        print(json.dumps(found))
        return
    before = figures.machine()
    sizes: dict[str, Any] = {}
    for size_mb in options.sizes:
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.snapshot", "--one", kind]
            command += ["--device", options.device, "--sizes"]
            done = subprocess.run(
                [*command, str(size_mb)], check=True, stdout=subprocess.PIPE, text=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            sizes.setdefault(f"{size_mb}_mb", {})[kind] = found
            print(size_mb, "MB", kind, found["stall_over_copy"], file=sys.stderr, flush=True)
    on_gpu = options.device == "cuda"
    figures.save(
        "snapshot_gpu" if on_gpu else "snapshot",
        {
            "sizes": sizes,
            "to_reach": {"overlapped_over_copy": 0.1, "at_once_over_copy": 1.2},
            "gpu": torch.cuda.get_device_name() if on_gpu else "not run here: make bench-gpu",
            "versions": figures.versions(["everstep", "torch", "numpy"]),
            "machine": before,
        },
        keep=options.sizes == list(SIZES_MB),
    )


if __name__ == "__main__":
    main()
