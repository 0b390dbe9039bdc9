"""Puts a rank's state together from snapshots that were taken under another layout.

Every tensor is a block of a whole one, in the old ranks' snapshots and here; what they share is
copied, each element once. Nothing is averaged and nothing is guessed: a tensor that no snapshot
covers, that has another dtype or shape now, or of which two old ranks hold copies with different
bits, is refused by name. Every part that is copied from is checked as a whole, so a rank that takes
half of it reads all of it.

What is no part of anything comes from one old rank, the elder (``core.resharding``). A group that
is new has its elder's schedule and objects, and begins random streams of its own: they are derived
from the elder's states, the step and the group, so that ranks whose elders draw alike (a
tensor-parallel group) go on drawing alike, and no stream is drawn from twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import xxhash
from torch import Tensor

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.core.resharding import Elder, elder_of
from everstep.memory.parts import PLACES_NAME, TensorPart, parts_in
from everstep.memory.reader import SlotReader
from everstep.memory.regions import Region, overlap, without
from everstep.memory.slot import SlotHeader, checksum_of
from everstep.train import randomness
from everstep.train.endings import RestoreFailedError, StateMismatchError
from everstep.train.gradients import local_part, offsets_of
from everstep.train.slot_source import (
    SlotSource,
    dtype_name,
    fill_checked,
    require_checksum,
    where_it_lies,
)
from everstep.train.state import TrackedState

_LAYOUT: Final = ".layout"  # behind an optimizer's name, as ``TrackedState`` keeps it
_RANDOM: Final = "rng."


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSlots:
    """What a plan says of a restore from another layout.

    Args:
        old: the layout of the ranks that took the snapshots.
        new: the layout of the job from now on.
        paths: snapshots by old rank; ``core.resharding.sources_needed`` says whose.
        lost: old ranks of which there is no snapshot; all new ranks are told the same.
    """

    old: Layout
    new: Layout
    paths: Mapping[int, Path]
    lost: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holding:
    """An old rank's part of a tensor."""

    rank: int
    reader: SlotReader
    part: TensorPart


class ReshardingSource:
    """A ``StateSource`` over the open snapshots of several old ranks.

    Args:
        readers: by old rank; open for as long as this is used.
        slots: what the plan says.
        rank: of the new layout.
        threads: how many fill tensors at the same time; with more than one they are filled, and
            damage is told of, only when ``finish`` returns.
        is_audit: no group is new: it does the work of its elder's once more.

    Raises:
        RestoreFailedError: the snapshots do not belong together, or the elder's is not among them.
    """

    def __init__(
        self,
        readers: Mapping[int, SlotReader],
        slots: OldSlots,
        rank: int,
        threads: int = 1,
        *,
        is_audit: bool = False,
    ) -> None:
        try:
            elder = elder_of(slots.old, slots.new, rank, lost=slots.lost)
            self._elder = replace(elder, is_new=False) if is_audit else elder
        except InvalidInput as error:
            raise RestoreFailedError(str(error)) from None
        if self._elder.rank not in readers:
            raise RestoreFailedError(
                f"rank {rank} goes on from old rank {self._elder.rank}, but the plan names only "
                f"the snapshots of old ranks {_joined(readers)}"
            )
        headers = {old: reader.header for old, reader in sorted(readers.items())}
        _require_ranks(headers, slots.old)
        _require_alike(headers, self._elder.rank)
        self._reader = readers[self._elder.rank]  # the elder's
        self._own = SlotSource(self._reader)
        self._ranks = _joined(readers)
        self._holdings: dict[str, list[_Holding]] = {}
        for old, reader in sorted(readers.items()):
            for name, part in parts_in(reader.header).items():
                holding = _Holding(rank=old, reader=reader, part=part)
                self._holdings.setdefault(name, []).append(holding)
        self._pool = ThreadPoolExecutor(threads, "reshard") if threads > 1 else None
        self._filling: list[Future[None]] = []
        self.problems = _different_objects(headers, self._elder) if self._elder.is_new else ()

    def fill(self, name: str, tensor: Tensor) -> None:
        """Put a tensor together, of a DTensor this rank's part."""
        local = local_part(tensor)
        wanted = Region(offsets_of(tensor), tuple(local.shape))
        holdings = self._fitting(name, dtype_name(local), tuple(tensor.shape))
        if not wanted.size:
            return
        used = self._distinct(name, holdings, wanted)
        gaps = without(wanted, [one.part.region for one in used])
        if gaps:
            raise RestoreFailedError(
                f"{name}{gaps[0]} is in none of the snapshots of old ranks {self._ranks}: "
                f"{wanted} is wanted"
            )
        for one in used:
            work = partial(_copy, one.reader, one.part, local, wanted)
            if self._pool is None:
                work()
            else:
                self._filling.append(self._pool.submit(work))

    def make(self, name: str) -> Tensor:
        """Return a tensor of an object of the elder's."""
        return self._own.make(name)

    def tree(self, name: str) -> Any:
        """Return an object of the elder's."""
        return self._own.tree(name)

    def finish(self) -> None:
        """Wait until all is filled, and check the random states, which are taken later.

        Raises:
            SlotDamagedError: something is not what was written.
        """
        for filling in self._filling:
            filling.result()
        self._filling.clear()
        if self._elder.is_new:
            return
        for entry in self._reader.header.entries:
            if entry.name.startswith(_RANDOM):
                require_checksum(self._reader, entry, checksum_of(self._reader.tensor(entry)))

    def close(self) -> None:
        """Let go of the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def restore_randomness(self, state: TrackedState) -> None:
        """Put the elder's random states back, or begin streams of a new group's own."""
        if not self._elder.is_new:
            state.restore_randomness(self._own)
            return
        header = self._reader.header
        states = [(one.name, one.checksum) for one in header.entries]
        states += [(name, one.checksum) for name, one in header.objects.items()]
        words = [f"{name} {checksum}" for name, checksum in states if name.startswith(_RANDOM)]
        seed = xxhash.xxh3_64_intdigest("\n".join(sorted(words)).encode())
        randomness.seed_all(seed, header.step, self._elder.group)

    def _fitting(self, name: str, dtype: str, whole: tuple[int, ...]) -> list[_Holding]:
        """Return the parts there are of a tensor, which all are of this dtype and shape."""
        holdings = self._holdings.get(name)
        if holdings is None:
            raise StateMismatchError(
                f"none of the snapshots of old ranks {self._ranks} has a tensor {name}, or says "
                "which part of it"
            )
        for one in holdings:
            if (one.part.entry.dtype, one.part.whole) != (dtype, whole):
                raise StateMismatchError(
                    f"{name} was kept by old rank {one.rank} as a part of "
                    f"{one.part.entry.dtype}{list(one.part.whole)}, now it is {dtype}{list(whole)}"
                )
        return holdings

    def _distinct(self, name: str, holdings: list[_Holding], wanted: Region) -> list[_Holding]:
        """Return what is to be copied from: of copies one, the elder's if it is among them."""
        found: dict[Region, _Holding] = {}
        for one in holdings:
            region = one.part.region
            if overlap(region, wanted) is None:
                continue
            known = found.setdefault(region, one)
            if known.part.entry.checksum != one.part.entry.checksum:
                raise RestoreFailedError(
                    f"{name}{region} differs between old ranks {known.rank} and {one.rank}: "
                    f"checksums {known.part.entry.checksum} and {one.part.entry.checksum}. What is "
                    "a rank's own belongs into an object with state_dict(), and copies of one "
                    "thing must be made equal before a step ends"
                )
            if one.rank == self._elder.rank:
                found[region] = one
        _refuse_crossing(name, list(found.values()))
        return list(found.values())


def _copy(reader: SlotReader, part: TensorPart, local: Tensor, wanted: Region) -> None:
    """Copy what an old rank's part and the wanted block share, and check all of the part."""
    shared = overlap(part.region, wanted)
    assert shared is not None, "only parts that hold some of it are copied from"
    target = local.detach()[shared.within(wanted)]
    if shared == part.region:
        fill_checked(reader, part.entry, target)
        return
    require_checksum(reader, part.entry, checksum_of(reader.tensor(part.entry)))
    target.copy_(where_it_lies(reader, part.entry)[shared.within(part.region)])


def _refuse_crossing(name: str, used: list[_Holding]) -> None:
    """Check that blocks which are not the same share nothing: one layout does not cut so."""
    for index, one in enumerate(used):
        for other in used[:index]:
            if overlap(one.part.region, other.part.region) is not None:
                raise RestoreFailedError(
                    f"{name}{other.part.region} of old rank {other.rank} and {one.part.region} of "
                    f"old rank {one.rank} overlap without being the same block"
                )


def _require_ranks(headers: Mapping[int, SlotHeader], old: Layout) -> None:
    """Check that each snapshot is of the rank and world that the plan takes it for."""
    for rank, header in headers.items():
        expected, got = (rank, old.world_size), (header.rank, header.world_size)
        if got != expected:
            raise RestoreFailedError(
                f"a snapshot of old rank {rank}: expected (rank, world size) {expected}, got {got}"
            )


def _require_alike(headers: Mapping[int, SlotHeader], elder: int) -> None:
    """Check that snapshots are of one step, data position, and set of optimizer options."""
    first = headers[elder]
    expected = _common(first)
    for rank, header in headers.items():
        found = _common(header)
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                raise RestoreFailedError(
                    f"{name} differs between old ranks {elder} and {rank}: "
                    f"{expected.get(name)} and {found.get(name)}"
                )


def _common(header: SlotHeader) -> dict[str, Any]:
    """Return what all ranks of a stage hold alike: all that tells how their parts are changed."""
    found: dict[str, Any] = {"the step": header.step, "the data position": header.data_state}
    for name in header.objects:
        if name + _LAYOUT not in header.objects:
            continue
        found[name] = header.objects[name].checksum
        found[name + _LAYOUT] = header.objects[name + _LAYOUT].checksum
        for entry in header.entries:  # options that are tensors, such as a captured step's rate
            if entry.name.startswith(f"{name}.") and not entry.name.startswith(f"{name}.state."):
                found[entry.name] = entry.checksum
    return found


def _different_objects(headers: Mapping[int, SlotHeader], elder: Elder) -> tuple[str, ...]:
    """Name the objects that old ranks do not have in common, for a group that gets copies."""
    found: list[str] = []
    for name, mine in sorted(headers[elder.rank].objects.items()):
        if name == PLACES_NAME or name.startswith(_RANDOM):
            continue
        for rank, header in headers.items():
            other = header.objects.get(name)
            if other is not None and other.checksum != mine.checksum:
                found.append(
                    f"{name} differs between old ranks {elder.rank} and {rank}: data-parallel "
                    f"group {elder.group} is new and begins with a copy of rank {elder.rank}'s"
                )
                break
    return tuple(found)


def _joined(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
