"""Reads a rank's state out of a slot, and checks every byte that it hands out.

A tensor is copied and checked in pieces that fit the processor's cache: what was copied is checked
where it now lies. Several threads fill several tensors at once, when the host has the cores;
neither copy nor checksum holds Python's lock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch
import xxhash
from torch import Tensor

from everstep.core.errors import CorruptData
from everstep.memory.reader import SlotReader
from everstep.memory.slot import Entry, checksum_of
from everstep.train import tree
from everstep.train.endings import RestoreFailedError, StateMismatchError
from everstep.train.gradients import local_part

# Chosen: smaller ones cost calls, and an L2 cache holds this much.
PIECE_BYTES: Final = 512 << 10
THREADS_MAX: Final = 4  # chosen: the host's other ranks restore at the same time


class SlotDamagedError(RestoreFailedError):
    """What lies in the slot is not what was written: another copy may be sound.

    Args:
        path: of the slot.
        problem: the whole message.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(problem)
        self.path = path


class SlotSource:
    """A ``StateSource`` that reads an open slot and checks every byte it hands out.

    Args:
        reader: of the slot; open for as long as this is used.
        threads: how many fill tensors at the same time; with more than one they are filled, and
            wrong ones are told of, only when ``finish`` returns.

    Raises:
        SlotDamagedError: from every method, when the snapshot is damaged.
        StateMismatchError: from every method, when it does not fit.
    """

    def __init__(self, reader: SlotReader, threads: int = 1) -> None:
        self._reader = reader
        self._unread = {entry.name for entry in reader.header.entries}
        self._pool = ThreadPoolExecutor(threads, "restore") if threads > 1 else None
        self._filling: list[Future[None]] = []

    def fill(self, name: str, tensor: Tensor) -> None:
        """Copy a kept tensor into ``tensor``, of a DTensor into this rank's part."""
        tensor = local_part(tensor)
        entry = self._entry(name)
        if (entry.dtype, entry.shape) != (dtype_name(tensor), tensor.shape):
            raise StateMismatchError(
                f"{name} was kept as {entry.dtype}{list(entry.shape)}, "
                f"now it is {dtype_name(tensor)}{list(tensor.shape)}"
            )
        self._unread.discard(name)
        if self._pool is None:
            fill_checked(self._reader, entry, tensor)
        else:
            self._filling.append(self._pool.submit(fill_checked, self._reader, entry, tensor))

    def make(self, name: str) -> Tensor:
        """Return a kept tensor as a new one."""
        entry = self._entry(name)
        tensor = torch.empty(entry.shape, dtype=getattr(torch, entry.dtype))
        self.fill(name, tensor)
        if self._filling:
            self._filling[-1].result()
        return tensor

    def tree(self, name: str) -> Any:
        """Return a kept object."""
        try:
            data = self._reader.object_data(name)
        except CorruptData as error:
            raise SlotDamagedError(self._reader.path, str(error)) from None
        if data is None:
            raise StateMismatchError(f"{self._reader.path} has no object {name}")
        return tree.decode(data, self.make)

    def finish(self) -> None:
        """Wait until all is filled, and check what nobody has asked for yet."""
        for filling in self._filling:
            filling.result()
        self._filling.clear()
        for name in sorted(self._unread):
            entry = self._entry(name)
            require_checksum(self._reader, entry, checksum_of(self._reader.tensor(entry)))
        for name in sorted(self._reader.header.objects):
            try:
                self._reader.object_data(name)
            except CorruptData as error:
                raise SlotDamagedError(self._reader.path, str(error)) from None

    def close(self) -> None:
        """Let go of the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _entry(self, name: str) -> Entry:
        entry = self._reader.entry(name)
        if entry is None:
            raise StateMismatchError(f"{self._reader.path} has no tensor {name}")
        return entry


def fill_checked(reader: SlotReader, entry: Entry, tensor: Tensor) -> None:
    """Copy the whole of a kept tensor into one of its dtype and shape, and check what has come.

    Raises:
        SlotDamagedError: it is not what was written; ``tensor`` then holds anything.
    """
    if entry.bytes and tensor.device.type == "cpu" and tensor.is_contiguous():
        target = tensor.detach().view(-1).view(torch.uint8).numpy().data
        require_checksum(reader, entry, _copied(reader, entry, target))
        return
    data = reader.tensor(entry)
    require_checksum(reader, entry, checksum_of(data))
    if entry.bytes:
        with torch.no_grad():
            tensor.copy_(where_it_lies(reader, entry))


def where_it_lies(reader: SlotReader, entry: Entry) -> Tensor:
    """Return a kept tensor that is not empty without copying it; look, and do not write."""
    data = reader.tensor(entry)
    return torch.frombuffer(data, dtype=getattr(torch, entry.dtype)).view(entry.shape)


def require_checksum(reader: SlotReader, entry: Entry, got: str) -> None:
    """Check the xxh3-128 of a kept tensor. Raises SlotDamagedError."""
    if got != entry.checksum:
        raise SlotDamagedError(
            reader.path,
            f"{reader.path}: tensor {entry.name}: checksum expected {entry.checksum}, got {got}",
        )


def _copied(reader: SlotReader, entry: Entry, target: memoryview) -> str:
    """Copy a tensor's bytes and return the xxh3-128 of what has arrived, in hex."""
    try:
        if entry.bytes <= PIECE_BYTES:
            reader.read_into(entry, 0, target)
            return checksum_of(target)
        digest = xxhash.xxh3_128()
        for begin in range(0, entry.bytes, PIECE_BYTES):
            piece = target[begin : begin + PIECE_BYTES]
            reader.read_into(entry, begin, piece)
            digest.update(piece)
    except (CorruptData, OSError) as error:
        raise SlotDamagedError(reader.path, str(error)) from None
    return digest.hexdigest()


def dtype_name(tensor: Tensor) -> str:
    """Return the name by which torch knows the dtype of a tensor."""
    return str(tensor.dtype).removeprefix("torch.")
