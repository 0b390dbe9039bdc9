"""What a rank's batch holds, for token shards and for datasets of the user's own."""

import numpy as np
import pytest
import torch

from everstep.core.errors import InvalidInput, NotFoundError
from everstep.core.spec import DataSpec
from everstep.train.batches import BatchSource, require_data

CPU = torch.device("cpu")


class Squares:
    """Pairs of a number and its square."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int):
        return torch.tensor([float(index)]), torch.tensor([float(index**2)])


class Named(Squares):
    """The same as a map."""

    def __getitem__(self, index: int):
        return {"x": index}


def source(path="", tokens=4, *, group=0, groups=1, dataset=None, dtype="auto") -> BatchSource:
    """Return a source of global batches of 8 samples in micro-batches of 2."""
    shards = {"path": str(path), "sequence_tokens": tokens} if path else {}
    spec = DataSpec(**shards, dtype=dtype, global_batch=8, micro_batch=2)
    return BatchSource(spec, seed=1, group=group, groups=groups, device=CPU, dataset=dataset)


def test_targets_are_the_inputs_one_token_further_on(tmp_path):
    """Each row is a window of the corpus; the last token is only a target."""
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "x.bin")
    batch = source(tmp_path / "x.bin").batch(3)
    assert batch.inputs.shape == batch.targets.shape == (8, 4)
    assert torch.equal(batch.targets, batch.inputs + 1)
    assert batch.inputs[:, 0].tolist() == [4 * sample for sample in batch.samples]
    assert (batch.position, batch.micro_batches, batch.token_count) == (3, 4, 32)


def test_tokens_are_read_with_the_dtype_of_the_spec(tmp_path):
    """A large vocabulary's tokens need 32 bits, and nothing in the file says so."""
    np.arange(70_000, 71_000, dtype=np.uint32).tofile(tmp_path / "x.bin")
    batch = source(tmp_path / "x.bin", dtype="uint32").batch(3)
    assert batch.inputs[:, 0].tolist() == [70_000 + 4 * sample for sample in batch.samples]
    with pytest.raises(InvalidInput, match=r"data\.dtype: uint32"):
        source(tmp_path / "x.bin")


def test_groups_share_the_rows_of_the_global_batch_in_order(tmp_path):
    """Two groups' inputs, one after the other, are the single group's."""
    np.arange(1000, dtype=np.uint16).tofile(tmp_path / "x.bin")
    whole = source(tmp_path / "x.bin").batch(5)
    parts = [source(tmp_path / "x.bin", group=g, groups=2).batch(5) for g in range(2)]
    assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)


def test_pairs_of_a_dataset_become_inputs_and_targets():
    """A map-style dataset is collated like PyTorch's loader does it."""
    batch = source(dataset=Squares()).batch(0)
    assert torch.equal(batch.targets, batch.inputs.square())
    assert batch.inputs.flatten().tolist() == [float(sample) for sample in batch.samples]
    assert batch.token_count == 8


def test_other_samples_of_a_dataset_are_inputs_alone():
    """What is no pair is handed over whole."""
    batch = source(dataset=Named()).batch(0)
    assert batch.inputs["x"].tolist() == list(batch.samples)
    assert batch.targets is None


def test_unusable_data_is_refused(tmp_path):
    """No data section, no corpus, or one that is shorter than a sample."""
    with pytest.raises(InvalidInput, match="data section"):
        require_data(None)
    for unnamed in (source, lambda: source(tmp_path / "x.bin", tokens=0)):
        with pytest.raises(InvalidInput, match="token shards need"):
            unnamed()
    with pytest.raises(NotFoundError, match="no corpus"):
        source(tmp_path / "absent")
    np.arange(4, dtype=np.uint16).tofile(tmp_path / "short.bin")
    with pytest.raises(InvalidInput, match="one sample needs 5"):
        source(tmp_path / "short.bin")
