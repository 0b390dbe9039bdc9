"""Moments of one optimizer over several modules, through a slot file and back."""

import torch
from torch import nn

from everstep.memory.layout import slot_path
from everstep.memory.reader import SlotReader, verify_slot
from everstep.memory.writer import Owner
from everstep.train.slot_source import SlotSource
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState

CPU = torch.device("cpu")
OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=0)


class Halves(nn.Module):
    """Two halves with the same inner names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)


def test_one_optimizer_over_two_modules_of_equal_names_comes_back(tmp_path):
    """Its moments are named with the module that their parameter is of."""

    def begin(seed):
        halves = Halves(seed)
        optimizer = torch.optim.AdamW(halves.parameters(), lr=0.1)
        named = {"encoder": halves.encoder, "decoder": halves.decoder, "optimizer": optimizer}
        return halves, optimizer, TrackedState(CPU, named)

    def step(halves, optimizer):
        halves.decoder(halves.encoder(torch.ones(2, 4))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    halves, optimizer, state = begin(1)
    snapshots = Snapshots(tmp_path, OWNER, state)
    snapshots.prepare()
    step(halves, optimizer)
    slot = slot_path(tmp_path, snapshots.take(step=1, data_state={}))
    snapshots.go_on(lambda: None)
    snapshots.settle()
    snapshots.wait_whole()
    names = {entry.name for entry in verify_slot(slot).entries}
    halves_names = {f"optimizer.state.{half}.weight.exp_avg" for half in ("encoder", "decoder")}
    assert halves_names <= names
    step(halves, optimizer)

    again, optimizer, state = begin(2)
    with SlotReader(slot) as reader:
        source = SlotSource(reader)
        state.restore(source)
        source.finish()
    step(again, optimizer)
    for one, other in zip(halves.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
