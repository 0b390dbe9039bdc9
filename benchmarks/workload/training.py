"""The training that every contestant runs: the reference model, split over 8 ranks.

Only the parts that a user of any product would write the same way live here: mesh, model,
optimizer, batches, one step. How state is kept and put back is the contestant's own business.
Imports are few on purpose: a restarted process pays for each of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from everstep.data.loader import BatchPlan
from everstep.data.shards import open_shards
from everstep.models.llama import LlamaConfig
from everstep.models.optimizer import LocalAdamW
from everstep.models.parallel import Trainer, build_stage
from everstep.models.schedule import rate_share
from everstep.train.gradients import Gradients

SEED: Final = 1234
PEAK_RATE: Final = 1e-3
WARMUP_STEPS: Final = 10
TOTAL_STEPS: Final = 10_000  # of the schedule; runs end earlier
GRAD_NORM_MAX: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Model, layout and batch of a benchmark."""

    model: LlamaConfig
    pp: int = 2
    dp_replicate: int = 1
    dp_shard: int = 2
    tp: int = 2
    global_batch: int = 16
    micro_batch: int = 2

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.pp * self.dp_replicate * self.dp_shard * self.tp


# The demo's model and layout.
DEMO: Final = Sizes(model=LlamaConfig())


def make_optimizer(model: nn.Module) -> LocalAdamW:
    """Return the reference model's optimizer: matrices decay, norms do not."""
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    vectors = [one for one in model.parameters() if one.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return LocalAdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=True)


class Training:
    """One rank's part of the run; joins the process group if nobody has yet.

    Args:
        sizes: of model, layout and batch.
        corpus: prepared token shards.
    """

    def __init__(self, sizes: Sizes, corpus: Path) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        device = torch.device("cpu")
        shape = (sizes.pp, sizes.dp_replicate, sizes.dp_shard, sizes.tp)
        names = ("pp", "dp_replicate", "dp_shard", "tp")
        self.mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        self.model = build_stage(sizes.model, self.mesh, seed=SEED, device=device)
        self.optimizer = make_optimizer(self.model)
        self._group = self.mesh.get_local_rank("dp_replicate") * sizes.dp_shard
        self._group += self.mesh.get_local_rank("dp_shard")
        self._groups = sizes.dp_replicate * sizes.dp_shard
        self._length = sizes.model.sequence_tokens
        self._shards = open_shards(corpus)
        self._plan = BatchPlan(
            seed=SEED,
            samples=self._shards.samples(self._length),
            global_batch=sizes.global_batch,
            micro_batch=sizes.micro_batch,
        )
        self._trainer = Trainer(
            sizes.model,
            self.model,
            self.mesh,
            micro_batches=self._plan.micro_batches // self._groups,
            micro_batch=sizes.micro_batch,
            device=device,
        )
        self._gradients = Gradients([self.optimizer], self.mesh)

    def step(self, number: int) -> None:
        """Train on global batch ``number`` (from 0): forward, backward, clip, apply."""
        share = self._plan.share(number, self._group, self._groups)
        samples = [sample for micro in share for sample in micro]
        rows = torch.from_numpy(self._shards.read(samples, self._length))
        self._trainer.forward_backward(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        self._gradients.gather()
        squared = torch.tensor(self._gradients.squared_norm(), dtype=torch.float64)
        dist.all_reduce(squared)
        self._gradients.clip(float(squared) ** 0.5, GRAD_NORM_MAX)
        share_of_peak = rate_share(number, warmup_steps=WARMUP_STEPS, total_steps=TOTAL_STEPS)
        for group in self.optimizer.param_groups:
            group["lr"] = PEAK_RATE * share_of_peak
        self.optimizer.step()
        self.optimizer.zero_grad()
