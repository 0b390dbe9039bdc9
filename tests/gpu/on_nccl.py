"""The reference model, refusing to run on anything but an accelerator with NCCL."""

from __future__ import annotations

from torch import distributed as dist

from everstep.models import pretrain
from everstep.train.run import Run


def main(run: Run) -> None:
    """Check where this rank runs, then pre-train."""
    backends = {name: dist.get_backend(run.mesh.get_group(name)) for name in ("pp", "dp_shard")}
    wrong = run.device.type != "cuda" or any("nccl" not in name for name in backends.values())
    if wrong:
        raise RuntimeError(f"rank {run.rank} runs on {run.device} over {backends}")
    pretrain.main(run)
