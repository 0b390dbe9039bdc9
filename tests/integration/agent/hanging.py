"""A small training run that hangs as it is told: ``args`` name the rank, the step and how."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from everstep import train

SAMPLES = 64


class Numbers:
    """Samples that are their own index; at the appointed one the dataset blocks."""

    def __init__(self, args: dict[str, Any], *, guilty: bool) -> None:
        self._args = args
        self._guilty = guilty
        self.step = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._guilty and self.step == self._args["step"]:
            match self._args["how"]:
                case "sleeping_loader":
                    time.sleep(3_600)
                case "reading_loader":
                    with Path(self._args["fifo"]).open("rb") as pipe:
                        pipe.read(1)
                case _:
                    pass
        return torch.tensor([float(index)])


def main(run: train.Run) -> None:
    """Train; the guilty rank misbehaves before the step it is told."""
    guilty = run.rank == run.args["rank"]
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    run.track(model=model, optimizer=optimizer)
    dataset = Numbers(run.args, guilty=guilty)
    # Of its own: in the group of the step's vote, gloo sees that one collective meets another.
    group = dist.new_group()
    for batch in run.batches(dataset):
        loss = model(batch.inputs).mean()
        loss.backward()
        due = run.step_index == run.args["step"]
        if due and guilty and run.args["how"] == "spin":
            spin()
        if due and run.args["how"] == "all_wait":
            wait_for_the_next(run)
        if not (due and guilty and run.args["how"] == "skip"):
            average(model, group)
        run.step(optimizer, loss=loss, tokens=batch.token_count)
        dataset.step = run.step_index
        if guilty and run.args["how"] == "evaluate" and run.step_index == run.args["step"]:
            evaluate()


def evaluate() -> None:
    """Take long between two steps."""
    time.sleep(3_600)


def spin() -> None:
    """Never come back."""
    while True:
        pass


def average(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Make the gradients equal on all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)


def wait_for_the_next(run: train.Run) -> None:
    """Wait for a message that nobody sends, on every rank at once."""
    dist.recv(torch.zeros(1), src=(run.rank + 1) % run.world_size)


def script() -> None:
    """What a script without the SDK does: wait for ever, where everybody can see it."""
    time.sleep(3_600)


if __name__ == "__main__":
    print(f"rank {os.environ['RANK']} waits", flush=True)  # noqa: T201 - the test waits for this line
    script()
