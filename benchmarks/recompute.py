"""What re-running work to compare its bits costs: while nothing is due, and in a shadow step.

One rank's step of a small Llama, in processor time of its thread, in turns: without anything, with
the hooks alone, with norms of gradients, and with all bits fingerprinted. A shadow step is forward
and backward once more, with fingerprints; so is the step beside it. What is exchanged between ranks
(10 KB of random states) and reduced once more (the gradients) is not in it. Run:
``make bench NAME=recompute``.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any, Final

import torch
from benchmarks.support import figures
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh

from everstep.models.llama import LlamaConfig, Stage
from everstep.models.optimizer import LocalAdamW
from everstep.models.parallel import Trainer, build_stage
from everstep.train.groups import MESH_NAMES
from everstep.train.local_gradients import LocalGradients
from everstep.train.shadow import Outputs

CONFIG: Final = LlamaConfig(dim=256, layers=4, heads=8, kv_heads=4, ffn_dim=768)
MICRO_BATCHES: Final = 4
SAMPLES: Final = 8
STEPS: Final = 30
WARM_STEPS: Final = 3


@dataclass(kw_only=True)
class Arm:
    """One way to train, with a model of its own."""

    stage: Stage
    trainer: Trainer
    optimizer: LocalAdamW
    gradients: LocalGradients | None = None
    outputs: Outputs | None = None

    def work_ms(self, tokens: Tensor) -> float:
        """Return the processor time of forward and backward, and of what is done beside them."""
        begun_ns = time.thread_time_ns()
        if self.gradients is not None and self.outputs is not None:
            self.gradients.begin()
            self.outputs.begin()
        loss = self.trainer.forward_backward(tokens, tokens)
        if self.gradients is not None:
            self.gradients.take_squared_norm()
            if self.outputs is not None:
                self.gradients.end()
                self.outputs.end(float(loss.item()) if loss is not None else None)
        return (time.thread_time_ns() - begun_ns) / 1e6

    def update_ms(self) -> float:
        """Return the processor time of the rest of a step."""
        begun_ns = time.thread_time_ns()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (time.thread_time_ns() - begun_ns) / 1e6


def make_arm(mesh: Any, *, hooks: bool = False, norms: bool = False, bits: bool = False) -> Arm:
    """Build a model, hooked as told."""
    device = torch.device("cpu")
    stage = build_stage(CONFIG, mesh, seed=1, device=device)
    trainer = Trainer(
        CONFIG,
        stage,
        mesh,
        micro_batches=MICRO_BATCHES,
        micro_batch=SAMPLES // MICRO_BATCHES,
        device=device,
    )
    arm = Arm(stage=stage, trainer=trainer, optimizer=LocalAdamW(stage.parameters(), fused=True))
    if hooks or norms or bits:
        arm.gradients = LocalGradients([stage], norms=norms)
    if bits:
        arm.outputs = Outputs([stage])
    return arm


def main() -> None:
    """Measure, and print."""
    argparse.ArgumentParser(prog="benchmarks.recompute", description=__doc__).parse_args()
    before = figures.machine()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1, 1, 1), mesh_dim_names=MESH_NAMES)
    arms = {
        "bare": make_arm(mesh),
        "hooks": make_arm(mesh, hooks=True),
        "norms": make_arm(mesh, norms=True),
        "fingerprints": make_arm(mesh, bits=True),
    }
    work: dict[str, list[float]] = {name: [] for name in arms}
    update: list[float] = []
    for step in range(STEPS + WARM_STEPS):
        shape = (SAMPLES, CONFIG.sequence_tokens)
        tokens = torch.randint(0, CONFIG.vocab_size, shape)
        for name, arm in arms.items():
            taken, rest = arm.work_ms(tokens), arm.update_ms()
            if step >= WARM_STEPS:
                work[name].append(taken)
                update.append(rest)
    parameters = sum(one.numel() for one in arms["bare"].stage.parameters())
    told = {name: figures.summary(taken) for name, taken in work.items()}
    bare, shadow, rest_ms = told["bare"], told["fingerprints"], figures.summary(update)
    assert bare is not None
    assert shadow is not None
    assert rest_ms is not None
    step_ms = bare["median"] + rest_ms["median"]
    figures.save(
        "recompute",
        {
            "parameters": parameters,
            "tokens": SAMPLES * CONFIG.sequence_tokens,
            "forward_backward_cpu_ms": told,
            "update_cpu_ms": rest_ms,
            "hooks_over_bare": figures.ratio(told["hooks"], bare),
            "norms_over_bare": figures.ratio(told["norms"], bare),
            "fingerprints_over_bare": figures.ratio(shadow, bare),
            "shadow_step_over_step": round(shadow["median"] / step_ms, 3),
            "machine": before,
        },
        keep=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
