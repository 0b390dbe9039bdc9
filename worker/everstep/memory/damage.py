"""Flips a bit of a snapshot on purpose: in the payload, where only a checksum can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from everstep.core.errors import NotFoundError
from everstep.faults.chance import seeded
from everstep.memory.reader import SlotReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What was done to a snapshot."""

    step: int
    tensor: str
    offset: int  # from the start of the file
    bit: int


def flip_snapshot(path: Path, *, seed: str, tensor: str = "") -> Damage:
    """Flip one bit of a tensor in a slot file that holds a snapshot.

    Args:
        path: of the file.
        seed: chooses what is not said.
        tensor: its name or the end of it; "": any that is not empty.

    Raises:
        NotFoundError: the file holds no snapshot, or no such tensor.
    """
    reader = SlotReader(path)
    try:
        entries = [one for one in reader.header.entries if one.bytes and _fits(one.name, tensor)]
        step = reader.step
    finally:
        reader.close()
    if not entries:
        raise NotFoundError(f"{path}: the snapshot of step {step} has no tensor {tensor!r}")
    choice = seeded(seed)
    entry = choice.choice(entries)
    offset, bit = entry.offset + choice.randrange(entry.bytes), choice.randrange(8)
    flip_file(path, offset=offset, bit=bit)
    return Damage(step=step, tensor=entry.name, offset=offset, bit=bit)


def flip_file(path: Path, *, offset: int, bit: int) -> None:
    """Flip one bit of a file, in place: whoever has it mapped sees it too."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes((byte ^ 1 << bit,)))


def _fits(name: str, wanted: str) -> bool:
    return not wanted or name == wanted or name.endswith(f".{wanted}")
