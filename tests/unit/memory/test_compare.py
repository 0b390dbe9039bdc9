"""Comparing the final states of two runs."""

from pathlib import Path

import pytest

from everstep.core.errors import CorruptData, InvalidInput, NotFoundError
from everstep.memory.compare import compare, state_checksum
from everstep.memory.writer import Owner, SlotWriter, TensorSpec


def write(directory: Path, rank: int, *, fill: int = 1, job: str = "job-1", **changes) -> Path:
    """Write a rank's durable slot below ``directory`` and return its path."""
    owner = Owner(job_id=job, rank=rank, world_size=2, generation=changes.get("generation", 0))
    name = changes.get("name", "model.weight")
    spec = TensorSpec(name=name, dtype="float32", shape=(4,), bytes=16)
    path = directory / f"rank-{rank}" / "durable"
    writer = SlotWriter(path, owner, (spec,))
    writer.begin()
    writer.buffers[name][:] = bytes([fill]) * 16
    writer.commit(
        step=changes.get("step", 7),
        data_state={"position": 7},
        objects={"rng": changes.get("rng", b"a")},
    )
    writer.close()
    return path


def test_equal_states_of_different_runs_are_equal(tmp_path):
    """Job id and generation are not part of the state."""
    for rank in range(2):
        write(tmp_path / "a", rank, fill=rank)
        write(tmp_path / "b", rank, fill=rank, job="job-2", generation=5)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert result.equal
    assert result.differences == ()
    assert result.tensors_compared == 2
    assert result.checksum_a == result.checksum_b == state_checksum(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"fill": 9}, "model.weight"),
        ({"rng": b"b"}, "@rng"),
        ({"step": 8}, "@step"),
        ({"name": "model.bias"}, "absent"),
    ],
)
def test_any_difference_is_named_with_its_rank(tmp_path, change, word):
    """One bit, another random state, another step or another tensor: all are seen."""
    for rank in range(2):
        write(tmp_path / "a", rank)
    write(tmp_path / "b", 0)
    write(tmp_path / "b", 1, **change)
    result = compare(tmp_path / "a", tmp_path / "b")
    assert not result.equal
    assert result.checksum_a != result.checksum_b
    assert all(line.startswith("rank 1") for line in result.differences)
    assert any(word in line for line in result.differences)


def test_missing_rank_is_a_difference(tmp_path):
    """A run with fewer ranks is not equal to one with more."""
    first = write(tmp_path / "a", 0)
    second = write(tmp_path / "a", 1)
    assert not compare([first, second], [first]).equal


def test_unusable_input_is_refused(tmp_path):
    """Nothing there, a rank twice, and bytes that fail their checksum are errors, not verdicts."""
    with pytest.raises(NotFoundError, match="no durable slots"):
        compare(tmp_path, tmp_path)
    path = write(tmp_path / "a", 0)
    with pytest.raises(InvalidInput, match="second snapshot of rank 0"):
        compare([path, path], [path])
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptData, match=r"model\.weight"):
        compare([path], [path])
