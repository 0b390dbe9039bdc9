"""Reads a rank's state out of a slot, and checks every byte that it hands out.

Tensors are copied and checked in pieces that fit the processor's cache, a large one in several and
small neighbours in one: what was copied is checked where it now lies. All is done at the end, in
the order of the file, because a call for each of many small tensors costs more than their bytes.
Several threads share the pieces, when the host has the cores; neither copy nor checksum holds
Python's lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
# In one call: Linux takes 1,024 buffers, and there may be one between each two tensors.
RUN_TENSORS_MAX: Final = 500
GAP_BYTES_MAX: Final = 4_096  # between two tensors of one call: what is read in vain
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
        threads: how many fill tensors at the same time.

    Raises:
        SlotDamagedError: from every method, when the snapshot is damaged.
        StateMismatchError: from every method, when it does not fit.
    """

    def __init__(self, reader: SlotReader, threads: int = 1) -> None:
        self._reader = reader
        self._entries = {entry.name: entry for entry in reader.header.entries}
        self._unread = set(self._entries)
        self._pool = ThreadPoolExecutor(threads, "restore") if threads > 1 else None
        self._later: list[tuple[Entry, Tensor]] = []

    def fill(self, name: str, tensor: Tensor) -> None:
        """Copy a kept tensor into ``tensor``, of a DTensor into this rank's part.

        It may be filled, and a wrong one told of, only when ``finish`` returns.
        """
        tensor = local_part(tensor)
        entry = self._entry(name)
        if entry.shape != tensor.shape or entry.dtype != dtype_name(tensor):
            raise StateMismatchError(
                f"{name} was kept as {entry.dtype}{list(entry.shape)}, "
                f"now it is {dtype_name(tensor)}{list(tensor.shape)}"
            )
        self._unread.discard(name)
        if _is_plain(tensor):
            self._later.append((entry, tensor))  # which must live until then
        else:
            fill_checked(self._reader, entry, tensor)

    def make(self, name: str) -> Tensor:
        """Return a kept tensor as a new one."""
        entry = self._entry(name)
        tensor = torch.empty(entry.shape, dtype=getattr(torch, entry.dtype))
        self._unread.discard(name)
        fill_checked(self._reader, entry, tensor)
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
        """Fill what is to be filled, and check what nobody has asked for."""
        runs = _runs(self._later)
        self._later = []
        if self._pool is None:
            for run in runs:
                _fill_run(self._reader, run)
        else:
            filling = [self._pool.submit(_fill_run, self._reader, run) for run in runs]
            for one in filling:
                one.result()
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
        entry = self._entries.get(name)
        if entry is None:
            raise StateMismatchError(f"{self._reader.path} has no tensor {name}")
        return entry


def fill_checked(reader: SlotReader, entry: Entry, tensor: Tensor) -> None:
    """Copy the whole of a kept tensor into one of its dtype and shape, and check what has come.

    Raises:
        SlotDamagedError: it is not what was written; ``tensor`` then holds anything.
    """
    if _is_plain(tensor):
        require_checksum(reader, entry, _copied(reader, entry, _memory_of(entry, tensor)))
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


def _is_plain(tensor: Tensor) -> bool:
    """Whether its bytes lie in the host's memory as they lie in a slot."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.numel() > 0


def _memory_of(entry: Entry, tensor: Tensor) -> memoryview:
    """Return a plain tensor's bytes, for as long as it lives; by way of NumPy it takes 2 us."""
    assert entry.bytes == tensor.numel() * tensor.element_size(), "a plain tensor has all its bytes"
    return memoryview((ctypes.c_ubyte * entry.bytes).from_address(tensor.data_ptr()))


def _runs(wanted: list[tuple[Entry, Tensor]]) -> Iterator[list[tuple[Entry, Tensor]]]:
    """Put neighbours together, in the order of the file."""
    run: list[tuple[Entry, Tensor]] = []
    begin = end = 0
    for entry, tensor in sorted(wanted, key=lambda one: one[0].offset):
        behind = entry.offset + entry.bytes
        fits = behind - begin <= PIECE_BYTES and entry.offset - end <= GAP_BYTES_MAX
        if run and not (fits and end <= entry.offset and len(run) < RUN_TENSORS_MAX):
            yield run
            run = []
        if not run:
            begin = entry.offset
        run.append((entry, tensor))
        end = behind
    if run:
        yield run


def _fill_run(reader: SlotReader, run: list[tuple[Entry, Tensor]]) -> None:
    """Fill neighbours, and check what has come. Raises SlotDamagedError, naming the first."""
    targets = [_memory_of(entry, tensor) for entry, tensor in run]
    entries = [entry for entry, _ in run]
    if len(run) == 1:
        require_checksum(reader, entries[0], _copied(reader, entries[0], targets[0]))
        return
    try:
        reader.read_run(entries, targets)
    except (CorruptData, OSError) as error:
        raise SlotDamagedError(reader.path, str(error)) from None
    for entry, target in zip(entries, targets, strict=True):
        require_checksum(reader, entry, checksum_of(target))


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
