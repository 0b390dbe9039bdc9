"""What an NVRx user writes: ``ft_launcher``, heartbeats, and local checkpoints on a RAM disk.

After the package's own examples (``train_ddp_heartbeats_api.py``, ``local_ckpt.py``) and its usage
guide, which asks for a custom ``TensorAwareStateDict`` where tensors do not lie on CUDA devices.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.peers.local_state import load_local_state, local_state
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO, Training
from nvidia_resiliency_ext import fault_tolerance
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import (
    BasicTensorAwareStateDict,
    nested_values,
)
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)
from torch import distributed as dist


class CpuStateDict(BasicTensorAwareStateDict):
    """The package's state dict without its insistence on CUDA."""

    def __init__(self, state_dict: dict[str, object]) -> None:
        self.state_dict = state_dict
        self._is_hollow = False
        assert next(nested_values(state_dict), None) is not None, "there is nothing to keep"

    def restore_tensor_device(self, non_blocking: bool = True) -> None:
        """Leave the tensors where they are."""


def main() -> None:
    """Resume, then train, save and send heartbeats."""
    notes = probe.probe_from_environment()
    notes.note(probe.STARTED)
    directory = Path(os.environ["BENCH_CHECKPOINT_DIR"])
    every = int(os.environ["BENCH_SAVE_EVERY"])
    training = Training(DEMO, Path(os.environ["BENCH_CORPUS"]))
    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    notes.note(probe.JOINED)
    # A save that the fault cut short leaves a file that a later save of that step trips over.
    for unfinished in (directory / str(dist.get_rank())).glob("*.dirty*"):
        unfinished.unlink()
    manager = LocalCheckpointManager(directory)
    step = 0
    if manager.find_latest() != -1:
        kept, _ = manager.load()
        step = load_local_state(training, kept.state_dict)
    notes.note(probe.RESTORED, step)
    client.send_heartbeat()
    while step < int(os.environ["BENCH_STEPS"]):
        training.step(step)
        step += 1
        notes.note(probe.STEP, step)
        client.send_heartbeat()
        if step % every == 0:
            manager.save(CpuStateDict(local_state(training, step)), step)
    client.shutdown_workload_monitoring()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
