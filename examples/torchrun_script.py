"""What people have today: torchrun's variables, a file saved now and then, a resume from it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY_STEPS = 500


def main() -> None:
    """Fit a line, slowly."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    file = options.out / f"{os.environ['TORCHELASTIC_RUN_ID']}.pt"  # one file a run

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = 0
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        first = saved["step"]
    for step in range(first, options.steps):
        inputs = torch.randn(32, 16)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % SAVE_EVERY_STEPS == 0:
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"model": model.state_dict(), "step": step + 1}, file)
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    del model  # before its group: else it would wait for gloo's threads while they wait for the GIL
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
