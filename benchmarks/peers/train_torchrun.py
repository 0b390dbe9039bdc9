"""What a torchrun user writes: torch.distributed.checkpoint into a directory, resume the newest.

After PyTorch's recipe "Getting Started with Distributed Checkpoint" and torchtitan's optimizer
options for pipeline parallelism (flattened, so that stages do not overwrite each other's groups).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch.distributed.checkpoint as dcp
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO, Training
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
KEPT = 2  # checkpoints; the newest may be unfinished when the fault comes


class State(Stateful):
    """Model and optimizer, as the recipe wraps them."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def state_dict(self) -> dict[str, Any]:
        """Return both under their global names."""
        model, optimizer = get_state_dict(
            self._training.model, self._training.optimizer, options=OPTIONS
        )
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put both back."""
        set_state_dict(
            self._training.model,
            self._training.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optimizer"],
            options=OPTIONS,
        )


def finished_steps(directory: Path) -> list[int]:
    """Return the steps whose checkpoint is complete: the metadata is written last."""
    return sorted(int(path.parent.name) for path in directory.glob("*/.metadata"))


def main() -> None:
    """Resume, then train and save."""
    notes = probe.probe_from_environment()
    notes.note(probe.STARTED)
    directory = Path(os.environ["BENCH_CHECKPOINT_DIR"])
    every = int(os.environ["BENCH_SAVE_EVERY"])
    training = Training(DEMO, Path(os.environ["BENCH_CORPUS"]))
    notes.note(probe.JOINED)
    done = finished_steps(directory)[-1:]
    step = done[0] if done else 0
    if step:
        dcp.load({"app": State(training)}, checkpoint_id=directory / str(step))
    notes.note(probe.RESTORED, step)
    while step < int(os.environ["BENCH_STEPS"]):
        training.step(step)
        step += 1
        notes.note(probe.STEP, step)
        if step % every == 0:
            dcp.save({"app": State(training)}, checkpoint_id=directory / str(step))
            if dist.get_rank() == 0:
                for old in finished_steps(directory)[:-KEPT]:
                    shutil.rmtree(directory / str(old))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
