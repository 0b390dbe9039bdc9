"""A rank's state on an accelerator goes into a slot and comes back, random states included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from everstep.memory.layout import slot_path
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.writer import Owner
from everstep.train.snapshots import SlotSource, Snapshots
from everstep.train.state import TrackedState

pytestmark = pytest.mark.torch

DEVICE = torch.device("cuda")
OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=1)


class Training:
    """A small model with dropout and fused AdamW, in mixed dtypes."""

    def __init__(self) -> None:
        self.model = nn.Sequential(
            nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.5), nn.Linear(256, 8)
        )
        self.model.to(DEVICE)
        self.model[3].to(torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, fused=True)

    def step(self) -> Tensor:
        """Return the loss of one step on random inputs."""
        x = torch.randn(32, 64, device=DEVICE)
        hidden = self.model[:3](x)
        loss = functional.mse_loss(self.model[3](hidden.bfloat16()).float(), x[:, :8])
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss.detach()

    @property
    def state(self) -> TrackedState:
        """What a snapshot keeps."""
        return TrackedState(DEVICE, {"model": self.model, "optimizer": self.optimizer})


def test_snapshot_of_a_device_continues_with_the_same_losses(tmp_path: Path):
    """Weights, moments, step counters on the device, and the generator that dropout draws from."""
    torch.manual_seed(5)
    training = Training()
    for _ in range(3):
        training.step()
    snapshots = Snapshots(tmp_path, OWNER, training.state)
    slot = snapshots.take(step=3, data_state={})
    snapshots.go_on(lambda: None)
    snapshots.settle()
    expected = [training.step() for _ in range(4)]
    assert verify_slot(slot_path(tmp_path, slot)).step == 3

    torch.manual_seed(99)
    other = Training()
    state = other.state
    source = SlotSource(SlotReader(slot_path(tmp_path, slot)))
    state.restore(source)
    state.restore_randomness(source)
    assert [other.step() for _ in range(4)] == expected
    assert other.optimizer.state[other.model[0].weight]["step"].device.type == "cuda"
