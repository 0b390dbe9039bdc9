"""Says whether two runs ended in the same state, bit for bit, from their slot files alone.

Names and checksums are compared and, before they are believed, checked against the bytes. Job,
generation and host are not state and do not count; the step and the data position are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from everstep.core.errors import InvalidInput, NotFoundError
from everstep.memory.layout import durable_path
from everstep.memory.reader import verify_slot
from everstep.memory.slot import SlotHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The verdict; ``differences`` are sentences, sorted by rank and name."""

    equal: bool
    tensors_compared: int
    differences: tuple[str, ...]
    checksum_a: str  # xxh3-128 over all names and checksums, hex
    checksum_b: str


def compare(a: Path | Sequence[Path], b: Path | Sequence[Path]) -> Comparison:
    """Compare the states of two runs.

    Args:
        a: slot files, one a rank; or one directory, below which every file named ``durable`` or
            ending in ``.shard`` is taken.
        b: the same of the other run.

    Raises:
        NotFoundError: a directory holds no slot files, or a file no complete snapshot.
        CorruptData: a file fails its own checksums.
        InvalidInput: two files of the same run are of the same rank.
    """
    state_a, state_b = _load(a), _load(b)
    differences: list[str] = []
    for key in sorted(state_a.keys() | state_b.keys()):
        value_a, value_b = state_a.get(key), state_b.get(key)
        if value_a != value_b:
            rank, name = key
            differences.append(
                f"rank {rank}, {name}: {value_a or 'absent'} against {value_b or 'absent'}"
            )
    tensors = sum(1 for _, name in state_a.keys() & state_b.keys() if not name.startswith("@"))
    return Comparison(
        equal=not differences,
        tensors_compared=tensors,
        differences=tuple(differences),
        checksum_a=_total(state_a),
        checksum_b=_total(state_b),
    )


def state_checksum(files: Path | Sequence[Path]) -> str:
    """Return one xxh3-128 over a run's whole state, in hex. Raises as ``compare`` does."""
    return _total(_load(files))


def slot_files(directory: Path) -> list[Path]:
    """Return the durable slots and downloaded shards below a directory, sorted.

    Raises:
        NotFoundError: there are none.
    """
    name = durable_path(directory).name
    found = sorted(
        path for path in directory.rglob("*") if path.name == name or path.suffix == ".shard"
    )
    if not found:
        raise NotFoundError(f"no durable slots and no .shard files below {directory}")
    return found


def _load(files: Path | Sequence[Path]) -> dict[tuple[int, str], str]:
    paths = slot_files(files) if isinstance(files, Path) else list(files)
    state: dict[tuple[int, str], str] = {}
    for path in paths:
        header = verify_slot(path)
        for name, value in state_of(header).items():
            key = (header.rank, name)
            if key in state:
                raise InvalidInput(f"{path} is a second snapshot of rank {header.rank}: give one")
            state[key] = value
    return state


def state_of(header: SlotHeader) -> dict[str, str]:
    """Return what makes up a rank's state, by name; what is no tensor begins with @."""
    state = {
        entry.name: f"{entry.dtype}{list(entry.shape)} {entry.checksum}" for entry in header.entries
    }
    state.update({f"@{name}": item.checksum for name, item in header.objects.items()})
    state["@step"] = str(header.step)
    state["@data_state"] = repr(sorted(header.data_state.items()))
    return state


def _total(state: dict[tuple[int, str], str]) -> str:
    total = xxhash.xxh3_128()
    for (rank, name), value in sorted(state.items()):
        total.update(f"{rank}\0{name}\0{value}\n".encode())
    return total.hexdigest()
