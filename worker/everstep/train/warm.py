"""Makes the process that ranks are forked from warm: everything a first step would do once.

The first step of a fresh process imports what PyTorch loads lazily (``torch._dynamo`` alone is
seconds) and fills caches that do not depend on the job. Done here, before the fork, every rank
inherits it. A tiny model takes one step over a fake process group, which communicates with nobody
and is taken down again. No accelerator is touched, because children could not use it after a fork:
with a torch that was built for one, only the imports are done.
"""

from __future__ import annotations

import importlib
from typing import Final

# Each is imported by the first step otherwise.
MODULES: Final = (
    "numpy",
    "torch._dynamo",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.optim.lr_scheduler",
    "torch.utils.data",
    "everstep.models.pretrain",
    "everstep.train.rank_main",
)


def warm_up() -> None:
    """Import everything; with a CPU-only torch, also take one step of a tiny model."""
    for name in MODULES:
        importlib.import_module(name)
    import torch

    # Asking the driver would already open a context, so the question is what torch was built for.
    if torch.version.cuda is None and torch.version.hip is None and torch.version.xpu is None:
        _take_one_step()


def _take_one_step() -> None:
    import torch
    from torch import distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from everstep.models.llama import LlamaConfig
    from everstep.models.parallel import Trainer, build_stage
    from everstep.models.pretrain import Hyperparameters, build_optimizer
    from everstep.train.groups import MESH_NAMES

    if torch.get_num_threads() > 1:  # started without OMP_NUM_THREADS=1, as the agent does it
        torch.set_num_threads(1)  # a pool of threads would not survive the fork
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (1, 1, 2, 2), mesh_dim_names=MESH_NAMES)
    cpu = torch.device("cpu")
    config = LlamaConfig(
        dim=8, layers=1, heads=2, kv_heads=2, ffn_dim=8, sequence_tokens=4, dropout=0.1
    )
    stage = build_stage(config, mesh, seed=0, device=cpu)
    trainer = Trainer(config, stage, mesh, micro_batches=1, micro_batch=1, device=cpu)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    optimizer = build_optimizer(stage, Hyperparameters())
    trainer.forward_backward(tokens, tokens)
    optimizer.step()
    dist.destroy_process_group()
