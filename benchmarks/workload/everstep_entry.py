"""What an Everstep user writes for the same training: the SDK's loop around the same model."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import torch
import xxhash
from benchmarks.workload import probe
from benchmarks.workload.training import (
    GRAD_NORM_MAX,
    PEAK_RATE,
    TOTAL_STEPS,
    WARMUP_STEPS,
    make_optimizer,
)
from torch import distributed as dist

from everstep.models.llama import LlamaConfig
from everstep.models.parallel import Trainer, build_stage
from everstep.models.schedule import rate_share
from everstep.train.gradients import local_part
from everstep.train.run import Run

PARTS_VARIABLE: Final = "BENCH_PARTS"
DEVICE_VARIABLE: Final = "BENCH_DEVICE_S"  # what an accelerator would take of a step [s]
PARTS: Final = "parts"
BYTES: Final = "bytes"  # of a rank's state, as the moment's step
PARTS_REPEATS: Final = 20


def main(run: Run) -> None:
    """Train until the spec's last step, noting the moments that the benchmarks read."""
    notes = probe.Probe(run.rank, Path(os.environ[probe.DIRECTORY_VARIABLE]))
    notes.note(probe.STARTED)
    data = run.spec.data
    assert data is not None, "the benchmarks' specs name a corpus"
    config = LlamaConfig(**run.args)
    model = build_stage(config, run.mesh, seed=run.spec.seed, device=run.device)
    optimizer = make_optimizer(model)
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
    device_s = float(os.environ.get(DEVICE_VARIABLE, "0"))
    cpu_before = time.process_time()
    for batch in run.batches():
        share = rate_share(run.step_index, warmup_steps=WARMUP_STEPS, total_steps=TOTAL_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * share
        loss = trainer.forward_backward(batch.inputs, batch.targets)
        time.sleep(device_s)
        report = run.step(
            optimizer, loss=loss, tokens=batch.token_count, max_grad_norm=GRAD_NORM_MAX
        )
        notes.note(
            probe.STEP,
            report.step,
            snapshot=report.stall_ms,
            collective=report.blocked_ms,
            data=report.data_wait_ms,
            cpu=(time.process_time() - cpu_before) * 1e3,
        )
        cpu_before = time.process_time()
    if os.environ.get(PARTS_VARIABLE) == "1":
        _measure_parts(notes, model, optimizer)


def _measure_parts(
    notes: probe.Probe, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Note what copying and checksumming this rank's state take while all ranks do the same."""
    sources = [local_part(one) for one in model.parameters()]
    for kept in optimizer.state.values():
        sources += [local_part(one) for one in kept.values()]
    targets = [torch.zeros_like(one) for one in sources]  # touched, as slots are
    for _ in range(PARTS_REPEATS):
        dist.barrier()
        begun = time.perf_counter()
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)
        copied = time.perf_counter()
        dist.barrier()
        hashing = time.perf_counter()
        for target in targets:
            xxhash.xxh3_128_hexdigest(memoryview(target.flatten().numpy()).cast("B"))
        hashed = time.perf_counter()
        notes.note(PARTS, copy=(copied - begun) * 1e3, checksum=(hashed - hashing) * 1e3)
    size = sum(one.numel() * one.element_size() for one in sources)
    notes.note(BYTES, size)
