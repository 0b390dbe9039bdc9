"""What a DLRover user writes: ``dlrover-run`` and Flash Checkpoint into the agent's memory.

After DLRover's ``fcp_demo.py`` and the docstring of ``DdpCheckpointer``, which is the one for
models that are partitioned over all ranks without Megatron: every rank is its own shard. The
other checkpointers want FSDP1, Megatron or DeepSpeed.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.local_state import load_local_state, local_state
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO, Training
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer, StorageType
from torch import distributed as dist


def main() -> None:
    """Resume, then train and save: to memory, now and then also to storage."""
    notes = probe.probe_from_environment()
    notes.note(probe.STARTED)
    every = int(os.environ["BENCH_SAVE_EVERY"])
    storage_every = int(os.environ["BENCH_STORAGE_EVERY"])
    training = Training(DEMO, Path(os.environ["BENCH_CORPUS"]))
    checkpointer = DdpCheckpointer(
        os.environ["BENCH_CHECKPOINT_DIR"],
        local_shard_num=int(os.environ["LOCAL_WORLD_SIZE"]),
        global_shard_num=dist.get_world_size(),
    )
    notes.note(probe.JOINED)
    kept = checkpointer.load_checkpoint()
    step = load_local_state(training, kept) if kept else 0
    notes.note(probe.RESTORED, step)
    while step < int(os.environ["BENCH_STEPS"]):
        training.step(step)
        step += 1
        notes.note(probe.STEP, step)
        if step % storage_every == 0:
            checkpointer.save_checkpoint(
                step, local_state(training, step), storage_type=StorageType.DISK
            )
        elif step % every == 0:
            checkpointer.save_checkpoint(
                step, local_state(training, step), storage_type=StorageType.MEMORY
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
