"""The rank without torch, whose snapshots are parts of a PyTorch checkpoint as a real one's are."""

from __future__ import annotations

from tests.integration.agent import fake_rank

from everstep.memory.writer import Part, TensorSpec


def _part_of_a_checkpoint(*, name: str, shape: tuple[int, ...], **fields) -> TensorSpec:
    part = Part(path=("model", name), whole=shape, offsets=(0,) * len(shape))
    return TensorSpec(name=name, shape=shape, part=part, **fields)


def run() -> int:
    """Train."""
    fake_rank.TensorSpec = _part_of_a_checkpoint
    return fake_rank.run()
