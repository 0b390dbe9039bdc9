"""What an Everstep user writes for the same training: the SDK's loop around the same model."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from benchmarks.workload import probe
from benchmarks.workload.training import GRAD_NORM_MAX, PEAK_RATE, TOTAL_STEPS, WARMUP_STEPS

from everstep.models.llama import LlamaConfig
from everstep.models.parallel import Trainer, build_stage
from everstep.models.schedule import rate_share
from everstep.train.run import Run


def main(run: Run) -> None:
    """Train until the spec's last step, noting the moments that the benchmarks read."""
    notes = probe.Probe(run.rank, Path(os.environ[probe.DIRECTORY_VARIABLE]))
    notes.note(probe.STARTED)
    data = run.spec.data
    assert data is not None, "the benchmarks' specs name a corpus"
    config = LlamaConfig(**run.args)
    model = build_stage(config, run.mesh, seed=run.spec.seed, device=run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, foreach=True)
    trainer = Trainer(
        config,
        model,
        run.mesh,
        micro_batches=data.global_batch // data.micro_batch // run.spec.layout.dp,
        micro_batch=data.micro_batch,
        device=run.device,
    )
    notes.note(probe.JOINED)
    run.track(model=model, optimizer=optimizer)
    notes.note(probe.RESTORED, run.step_index)
    for batch in run.batches():
        share = rate_share(run.step_index, warmup_steps=WARMUP_STEPS, total_steps=TOTAL_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * share
        loss = trainer.forward_backward(batch.inputs, batch.targets)
        run.step(optimizer, loss=loss, tokens=batch.token_count, max_grad_norm=GRAD_NORM_MAX)
        notes.note(probe.STEP, run.step_index)
