"""The ``.metadata`` that is written without torch is the one that torch would have pickled."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from everstep.core.errors import InvalidInput
from everstep.objectstore.torch_checkpoint import Part, metadata_of


def part(path, whole, offsets, shape, *, file="rank-0", offset=64, size=700, dtype="float32"):
    """A part of a tensor."""
    return Part(
        path=path,
        dtype=dtype,
        whole=whole,
        offsets=offsets,
        shape=shape,
        file=file,
        offset=offset,
        bytes=size,
    )


PARTS = [
    part(("model", "w"), (4, 3), (0, 0), (2, 3), offset=64),
    part(("model", "w"), (4, 3), (2, 0), (2, 3), file="rank-1", offset=2**40, size=2**33),
    part(("optimizer", "state", "w", "step"), (), (), (), file="rank-1", dtype="bfloat16"),
    part(("model", "w"), (4, 3), (0, 0), (2, 3), file="rank-2"),  # a replica: not needed
]


def expected() -> Metadata:
    """The same, of torch's classes."""
    sizes = torch.Size((2, 3))
    chunks = [ChunkStorageMetadata(torch.Size(at), sizes) for at in ((0, 0), (2, 0))]
    weights = TensorStorageMetadata(
        properties=TensorProperties(dtype=torch.float32), size=torch.Size((4, 3)), chunks=chunks
    )
    step = TensorStorageMetadata(
        properties=TensorProperties(dtype=torch.bfloat16),
        size=torch.Size(()),
        chunks=[ChunkStorageMetadata(torch.Size(()), torch.Size(()))],
    )
    return Metadata(
        state_dict_metadata={"model.w": weights, "optimizer.state.w.step": step},
        planner_data={
            "model.w": ("model", "w"),
            "optimizer.state.w.step": ("optimizer", "state", "w", "step"),
        },
        storage_data={
            MetadataIndex("model.w", (0, 0), 0): _StorageInfo("rank-0", 64, 700),
            MetadataIndex("model.w", (2, 0), 1): _StorageInfo("rank-1", 2**40, 2**33),
            MetadataIndex("optimizer.state.w.step", (), 0): _StorageInfo("rank-1", 64, 700),
        },
    )


def test_torch_reads_its_own_classes_with_our_values():
    """Shapes, places, sizes beyond four bytes; a replica is left out."""
    read = pickle.loads(metadata_of(PARTS))
    assert read == expected()
    (first, *_) = read.storage_data
    assert hash(first) == hash(MetadataIndex("model.w", (0, 0)))
    assert read.state_dict_metadata["model.w"].properties.memory_format == torch.contiguous_format
    assert isinstance(read.state_dict_metadata["model.w"].size, torch.Size)


def test_same_parts_give_the_same_bytes():
    """Two registries that complete the same checkpoint write the same object."""
    assert metadata_of(PARTS) == metadata_of(list(PARTS))


def test_two_tensors_of_one_name_are_refused():
    """Stages whose modules are named alike: torch would load one into the other."""
    other = part(("model", "w"), (5, 3), (2, 0), (3, 3), file="rank-7")
    with pytest.raises(InvalidInput, match=r"model.w is float32\[4, 3\] in rank-0 and float32\[5"):
        metadata_of([*PARTS, other])
