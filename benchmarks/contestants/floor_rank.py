"""A rank of the floor: join, build, copy the state out of shared memory, one step, leave.

No agent, no services, no checks, no checksums: what is left when everything that can be left out
is. The state file is the tensors' bytes one after the other, in the order of the parameters.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO, Training
from torch import Tensor

from everstep.train.gradients import local_part
from everstep.train.groups import wait_for_store

STATE_VARIABLE = "BENCH_FLOOR_STATE"
STEPS_VARIABLE = "BENCH_FLOOR_STEPS"
SAVE_VARIABLE = "BENCH_FLOOR_SAVE"


def run() -> None:
    """Restore if there is a state, train, and keep the state if asked."""
    notes = probe.probe_from_environment()
    notes.note(probe.STARTED)
    path = Path(os.environ[STATE_VARIABLE]) / f"rank-{os.environ['RANK']}"
    if os.environ["RANK"] != "0":  # as Everstep's ranks do
        wait_for_store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    training = Training(DEMO, Path(os.environ["BENCH_CORPUS"]))
    notes.note(probe.JOINED)
    step = _load(training, path) if path.exists() else 0
    notes.note(probe.RESTORED, step)
    for _ in range(int(os.environ[STEPS_VARIABLE])):
        training.step(step)
        step += 1
        notes.note(probe.STEP, step)
    if os.environ[SAVE_VARIABLE] == "1":
        _save(training, path, step)


def _save(training: Training, path: Path, step: int) -> None:
    with path.open("wb") as file:
        file.write(np.array([step], dtype=np.int64).tobytes())
        for parameter in training.model.parameters():
            kept = training.optimizer.state[parameter]
            for tensor in (parameter, kept["exp_avg"], kept["exp_avg_sq"]):
                file.write(local_part(tensor).numpy().tobytes())


@torch.no_grad()
def _load(training: Training, path: Path) -> int:
    kept = np.memmap(path, dtype=np.uint8, mode="c")  # copy on write: nothing is copied here
    (step,) = kept[:8].view(np.int64).tolist()
    offset = 8
    for parameter in training.model.parameters():
        moments = [torch.empty_like(parameter, requires_grad=False) for _ in range(2)]
        for tensor in (parameter, *moments):
            offset = _fill(local_part(tensor), kept, offset)
        training.optimizer.state[parameter] = {
            "step": torch.tensor(float(step)),
            "exp_avg": moments[0],
            "exp_avg_sq": moments[1],
        }
    return int(step)


def _fill(tensor: Tensor, kept: np.memmap, offset: int) -> int:
    size = tensor.numel() * tensor.element_size()
    source = torch.from_numpy(kept[offset : offset + size].view(np.float32))
    tensor.copy_(source.view(tensor.shape))
    return offset + size
