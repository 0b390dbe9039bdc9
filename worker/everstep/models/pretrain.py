"""Pre-trains the reference model; the entry point of the demo and of the tests.

``args`` of the job spec: the sizes of ``LlamaConfig`` (dim, layers, heads, kv_heads, ffn_dim,
vocab_size, dropout, recompute) and lr, warmup_steps, weight_decay, max_grad_norm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from everstep.core.errors import InvalidInput
from everstep.models.llama import LlamaConfig
from everstep.models.optimizer import LocalAdamW
from everstep.models.parallel import Trainer, build_stage, check_fits
from everstep.models.schedule import rate_share
from everstep.train.batches import require_shards
from everstep.train.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """Of the optimizer; the defaults are those of Llama 2 (arXiv:2307.09288) but for the rate."""

    lr: float = 3e-3  # for the tiny demo model
    warmup_steps: int = 10
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0


def main(run: Run) -> None:
    """Train for ``run.spec.steps`` steps."""
    data = require_shards(run.spec.data)
    config, hyper = read_args(run.args, data.sequence_tokens)
    micro_batches = data.global_batch // data.micro_batch // run.spec.layout.dp
    check_fits(config, run.mesh, micro_batches)
    stage = build_stage(config, run.mesh, seed=run.spec.seed, device=run.device)
    trainer = Trainer(
        config,
        stage,
        run.mesh,
        micro_batches=micro_batches,
        micro_batch=data.micro_batch,
        device=run.device,
    )
    optimizer = build_optimizer(stage, hyper)
    scheduler = LambdaLR(
        optimizer,
        lambda step: rate_share(step, warmup_steps=hyper.warmup_steps, total_steps=run.spec.steps),
    )
    run.seed_randomness()
    run.track(model=stage, optimizer=optimizer, scheduler=scheduler)
    for batch in run.batches():
        loss = trainer.forward_backward(batch.inputs, batch.targets)
        run.step(
            optimizer,
            loss=loss,
            tokens=batch.token_count,
            max_grad_norm=hyper.max_grad_norm,
        )


def build_optimizer(stage: nn.Module, hyper: Hyperparameters) -> torch.optim.AdamW:
    """Return AdamW that decays matrices and leaves norms alone."""
    matrices = [one for one in stage.parameters() if one.dim() >= 2]
    vectors = [one for one in stage.parameters() if one.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": hyper.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return LocalAdamW(groups, lr=hyper.lr, betas=(0.9, 0.95), fused=True)


def read_args(args: dict[str, Any], sequence_tokens: int) -> tuple[LlamaConfig, Hyperparameters]:
    """Split the job's args into sizes and hyperparameters.

    Raises:
        InvalidInput: an argument is unknown.
    """
    sizes = {field.name for field in fields(LlamaConfig)} - {"sequence_tokens"}
    hypers = {field.name for field in fields(Hyperparameters)}
    unknown = sorted(args.keys() - sizes - hypers)
    if unknown:
        raise InvalidInput(
            f"unknown args {', '.join(unknown)}; known are {', '.join(sorted(sizes | hypers))}"
        )
    config = LlamaConfig(
        **{key: value for key, value in args.items() if key in sizes},
        sequence_tokens=sequence_tokens,
    )
    return config, Hyperparameters(**{k: v for k, v in args.items() if k in hypers})
