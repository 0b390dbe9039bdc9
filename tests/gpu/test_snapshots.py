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
from everstep.train.slot_source import SlotSource
from everstep.train.snapshots import Snapshots
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
    source.finish()
    state.restore_randomness(source)
    assert [other.step() for _ in range(4)] == expected
    assert other.optimizer.state[other.model[0].weight]["step"].device.type == "cuda"


def test_copies_run_on_a_stream_of_their_own(tmp_path: Path):
    """Training's stream waits for none of it, and the slot holds what was there at the step's end.

    The stream is kept busy from before the snapshot until after it is whole: only a copy that waits
    for what was queued before, and for nothing that was queued behind, can end in between.
    """
    training = Training()
    training.step()
    snapshots = Snapshots(tmp_path, OWNER, training.state)
    snapshots.prepare()
    expected = training.model[0].weight.detach().clone().cpu()
    left = torch.randn(4096, 4096, device=DEVICE)
    torch.cuda.synchronize()
    slot = snapshots.take(step=1, data_state={})
    snapshots.go_on(lambda: None)
    for _ in range(2_000):
        left @ left
    behind = torch.cuda.current_stream().record_event()
    snapshots.settle()
    assert not behind.query(), "the snapshot waited for work that came after it"
    with SlotReader(slot_path(tmp_path, slot)) as reader:
        kept = SlotSource(reader).make("model.0.weight")
    assert torch.equal(kept, expected)
