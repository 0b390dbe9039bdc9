"""Answers what a host's ranks hold of a step that others must hold alike: one checksum a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from everstep.memory.layout import SLOT_COUNT, durable_path, rank_dir, slot_path
from everstep.memory.parts import SharedTensor, shared_in
from everstep.wire.v1.agents_pb2 import RankChecksums, TellChecksums, TensorChecksum


def checksums_of(memory_dir: Path, command: TellChecksums) -> list[RankChecksums]:
    """Return what is wanted, of the ranks that hold it; reads headers only."""
    return [
        RankChecksums(
            rank=rank,
            tensors=[
                TensorChecksum(name=one.name, checksum=one.checksum, over=one.over) for one in found
            ],
        )
        for rank in sorted(command.ranks)
        if (found := _held(rank_dir(memory_dir, command.job_id, rank), command.step))
    ]


def _held(directory: Path, step: int) -> tuple[SharedTensor, ...]:
    for path in _files(directory):
        told = shared_in(path)
        if told is not None and told[0] == step:
            return told[1]
    return ()


def _files(directory: Path) -> Iterable[Path]:
    yield from (slot_path(directory, slot) for slot in range(SLOT_COUNT))
    yield durable_path(directory)
