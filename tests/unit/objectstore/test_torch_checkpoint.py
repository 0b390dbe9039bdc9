"""The ``.metadata`` that is written without torch is the one that torch would have pickled."""

from __future__ import annotations

import io
import pickle

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from everstep.core.errors import InvalidInput
from everstep.objectstore.torch_checkpoint import Part, metadata_of
from everstep.objectstore.torch_options import Group, Optimizer, options_file


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


def test_torch_reads_what_is_no_tensor():
    """By group with places in lists, flat, and each value where it lies."""
    group = Group(parameters=("w", "b"), options=(("lr", 0.5), ("betas", (0.9, 0.99))))
    flat = Group(parameters=("c",), options=(("lr", 0.5), ("betas", (0.9, 0.99))))
    content, saved = options_file(
        [Optimizer(name="optimizer", groups=(one,)) for one in (group, flat)]
    )
    read = pickle.loads(metadata_of(PARTS, saved))
    names = [name for name in read.state_dict_metadata if "param_groups" in name]
    assert all(read.state_dict_metadata[name] == BytesStorageMetadata() for name in names)
    assert read.planner_data["optimizer.param_groups.0.lr"] == (
        "optimizer",
        "param_groups",
        0,
        "lr",
    )
    values = {}
    for name in names:
        place = read.storage_data[MetadataIndex(name)]
        assert place.relative_path == "options.distcp"
        data = io.BytesIO(content[place.offset : place.offset + place.length])
        values[name.removeprefix("optimizer.param_groups.")] = torch.load(data)
    by_group = {"0.lr": 0.5, "0.betas": (0.9, 0.99), "0.params": ["w", "b", "c"]}
    by_parameter = {f"{p}.{k}": v for p in "wbc" for k, v in group.options}
    assert values == by_group | by_parameter


def test_parameter_that_two_stages_have_is_told_once():
    """A tied embedding lies in the first and the last stage; its first owner speaks for it."""
    stages = [("w", "tied"), ("tied", "b")]
    groups = [Group(parameters=names, options=(("lr", 1),)) for names in stages]
    _, saved = options_file([Optimizer(name="o", groups=(one,)) for one in groups])
    flat = [one.name for one in saved if "param_groups.0" not in one.name]
    assert flat == [f"o.param_groups.{name}.lr" for name in ("w", "tied", "b")]


def test_stages_with_other_rates_are_told_flat_only():
    """One group cannot have two rates; each parameter has its own."""
    groups = [
        Group(parameters=(name,), options=(("lr", rate),)) for name, rate in (("a", 1), ("b", 2))
    ]
    _, saved = options_file([Optimizer(name="o", groups=(one,)) for one in groups])
    assert [one.path for one in saved] == [("o", "param_groups.a.lr"), ("o", "param_groups.b.lr")]


def test_same_parts_give_the_same_bytes():
    """Two registries that complete the same checkpoint write the same object."""
    assert metadata_of(PARTS) == metadata_of(list(PARTS))


def test_two_tensors_of_one_name_are_refused():
    """Stages whose modules are named alike: torch would load one into the other."""
    other = part(("model", "w"), (5, 3), (2, 0), (3, 3), file="rank-7")
    with pytest.raises(InvalidInput, match=r"model.w is float32\[4, 3\] in rank-0 and float32\[5"):
        metadata_of([*PARTS, other])
