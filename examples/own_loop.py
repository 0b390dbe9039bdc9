"""A training loop of one's own: what Everstep needs to know is in four calls."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from everstep.data.prepare import VOCAB_SIZE
from everstep.train.run import Run


def main(run: Run) -> None:
    """Learn to guess the next byte from this one."""
    torch.manual_seed(run.spec.seed)
    width = run.args["width"]
    model = nn.Sequential(
        nn.Embedding(VOCAB_SIZE, width),
        nn.Linear(width, 4 * width),
        nn.GELU(),
        nn.Linear(4 * width, VOCAB_SIZE),
    ).to(run.device)
    fully_shard(model, mesh=run.mesh["dp_shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.args["lr"])

    run.track(model=model, optimizer=optimizer)  # restores here when there is something to restore
    for batch in run.batches():  # begins at exactly the right batch
        loss = cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
        loss.backward()
        run.step(optimizer, loss=loss.detach(), tokens=batch.token_count, max_grad_norm=1.0)
