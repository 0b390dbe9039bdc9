"""Takes a rank's snapshots into shared memory, and restores from them.

Two slots and a rule: the older slot is overwritten only when the step's collective has told that
every rank holds the newer one in its own and its peer's memory. Otherwise this step takes no
snapshot: without the rule, survivors would run ahead of a dead host's replica until no step is left
that everybody has. The durable slot is apart, and overwritten only when its upload is done.

Slot files are created, sized and touched before the first snapshot, and tensors are copied straight
to their place in them.

Parameters and moments change in optimizer steps only, so their copies and all checksums are left to
a thread that runs beside the next forward and backward pass (``copier``); ``settle`` waits for the
unfinished rest before anything changes. What may change at any time (buffers, random states, other
tensors) is copied at once. A snapshot is valid, and its step is told, when the thread is through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from everstep.core.errors import CorruptData, InvalidInput
from everstep.memory.control import NO_STEP, Control
from everstep.memory.layout import SLOT_COUNT, control_path, durable_path, slot_path
from everstep.memory.reader import SlotReader
from everstep.memory.slot import Entry, checksum_of, invalidate, read_preamble
from everstep.memory.torch_file import is_known
from everstep.memory.writer import Owner, Part, SlotWriter, TensorSpec
from everstep.train import tree
from everstep.train.copier import Copier
from everstep.train.endings import RestoreFailedError, StateMismatchError
from everstep.train.gradients import local_part, offsets_of
from everstep.train.state import NamedTensors, TrackedState

_DURABLE: Final = SLOT_COUNT  # index behind the memory slots
COMPARED_MAX: Final = 1 << 13  # elements: what is compared a step takes some microseconds


@dataclass(slots=True, kw_only=True)
class _Target:
    """A slot file with tensors that lie in it."""

    writer: SlotWriter
    places: list[Tensor]


@dataclass(slots=True, kw_only=True)
class _Begun:
    """A snapshot, and what must not change until the next optimizer step.

    ``tensors`` are the parameters and moments, ``places`` their copies. While they are still to be
    copied, nobody may touch them at all; once they are, a change that is taken back does no harm.
    """

    step: int
    names: list[str]
    tensors: list[Tensor]
    places: list[Tensor]
    versions: list[int]  # empty when all was copied at once

    def require_untouched(self) -> None:
        """Check by autograd's own counters. Raises InvalidInput."""
        for name, tensor, version in zip(self.names, self.tensors, self.versions, strict=False):
            if _version(tensor) != version:
                self._refuse(name, "if it is put back before the next step: checkpoint.overlap")

    def require_same(self) -> None:
        """Compare one tensor, another one each step: ``.data`` moves no counter.

        Raises:
            InvalidInput: it is no longer what was kept.
        """
        if not self.names:
            return
        number = self.step % len(self.names)
        now = local_part(self.tensors[number]).detach().flatten()[:COMPARED_MAX].cpu()
        kept = self.places[number].flatten()[:COMPARED_MAX]
        if not torch.equal(now.view(torch.uint8), kept.view(torch.uint8)):
            self._refuse(self.names[number], "")

    def _refuse(self, name: str, instead: str) -> None:
        other = f"; {instead}: false in the job spec" if instead else ""
        raise InvalidInput(
            f"{name} was changed between run.step() and the next one: the snapshot of step "
            f"{self.step} would not hold the change, or half of it. Change it before run.step() or "
            f"in a step hook of the optimizer{other}"
        )


class Snapshots:
    """A rank's slots.

    Args:
        directory: of the rank's own snapshots.
        owner: goes into every header.
        state: what to keep.
        overlap: leave the copies of what is still between optimizer steps to the thread; else only
            the checksums.
    """

    def __init__(
        self, directory: Path, owner: Owner, state: TrackedState, *, overlap: bool = True
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._state = state
        self._overlap = overlap
        self._control = Control(control_path(directory))
        self._planned: tuple[Any, ...] = ()
        self._names: list[str] = []
        self._still: list[bool] = []
        self._targets: dict[int, _Target] = {}
        self._held_slot = 1  # so that a fresh run begins with slot 0
        self.held_step = NO_STEP
        self._copier = Copier(state.device)
        self._begun: list[_Begun] = []
        self._rest: list[Callable[[], None]] = []

    @property
    def replicated(self) -> bool:
        """Whether the newest memory snapshot also lies in the peer's memory, or there is none."""
        control = self._control
        held = self.held_step
        return held == NO_STEP or control.replication_off or control.replicated_step >= held

    @property
    def durable_busy(self) -> bool:
        """Whether the durable snapshot is not stored yet."""
        return self._control.durable_busy

    def restored(self, *, slot: int, step: int) -> None:
        """Note that the newest snapshot lies in ``slot``; the next goes to the other one.

        A newer step in the other slot belongs to a past that was given up (and, after a roll-back
        that skips batches, to another one than will come): nobody may restore from it any more.
        """
        self._held_slot = slot
        self.held_step = step
        other = slot_path(self._directory, 1 - slot)
        preamble = read_preamble(other)
        if preamble is not None and preamble.step >= step:
            invalidate(other)

    def begun_afresh(self) -> None:
        """Forget whatever an earlier attempt from the beginning has left."""
        for slot in range(SLOT_COUNT):
            invalidate(slot_path(self._directory, slot))

    def prepare(self) -> None:
        """Create and touch the slot files for the tensors that exist now."""
        moving, _ = self._state.moving()
        self._plan(moving)

    def _plan(self, moving: NamedTensors) -> None:
        wanted = (self._state.signature(), [(name, tensor.shape) for name, tensor in moving])
        if wanted == self._planned:
            return
        whole = self._state.tensors()
        fixed = [(name, local_part(tensor)) for name, tensor in whole]
        specs = [_spec(name, tensor) for name, tensor in [*fixed, *moving]]
        # What a rank has for itself (random states) is no part of a checkpoint of PyTorch.
        paths = self._state.paths()
        parts = [_as_part(spec, tensor, paths) for spec, (_, tensor) in zip(specs, whole)]  # noqa: B905 - the moving ones stay as they are
        durable_specs = [*parts, *specs[len(parts) :]]
        self._close()
        for index in (*range(SLOT_COUNT), _DURABLE):
            path = (
                durable_path(self._directory)
                if index == _DURABLE
                else slot_path(self._directory, index)
            )
            durable = index == _DURABLE
            writer = SlotWriter(path, self._owner, durable_specs if durable else specs)
            self._targets[index] = _Target(
                writer=writer,
                places=[_place(writer, name, tensor) for name, tensor in [*fixed, *moving]],
            )
        self._names = [name for name, _ in whole]
        still = self._state.still()
        self._still = [name in still for name in self._names]
        self._planned = wanted

    def _close(self) -> None:
        for target in self._targets.values():
            target.places.clear()  # the tensors hold the file's mapping
            target.writer.close()
        self._targets.clear()

    def take(self, *, step: int, data_state: dict[str, Any]) -> int:
        """Begin a memory snapshot over the older slot and return the slot's number."""
        slot = 1 - self._held_slot
        self._begin(slot, step, data_state)
        self._held_slot = slot
        self.held_step = step
        return slot

    def take_durable(self, *, step: int, data_state: dict[str, Any]) -> None:
        """Begin the durable snapshot; it stays as it is until the agent has stored it."""
        self._begin(_DURABLE, step, data_state)
        # At once, for the next step's vote; and again when it is whole, because an agent that
        # came back meanwhile has found nothing in the slot and given it up.
        self._control.durable_busy = True
        self._rest.append(self._durable_is_whole)

    def go_on(self, then: Callable[[], None]) -> None:
        """Finish what was begun beside training, and do ``then`` in the same thread."""
        work = [*self._rest, then]
        self._rest.clear()

        def finish() -> None:
            for one in work:
                one()

        self._copier.begin(finish)

    def settle(self) -> None:
        """Wait until all is copied: call it before an optimizer changes anything.

        Raises:
            InvalidInput: a parameter or moment was changed behind our back.
        """
        if self._overlap:
            self.wait_whole()
            return
        begun, self._begun = self._begun, []
        for one in begun:
            one.require_same()

    def wait_whole(self) -> None:
        """Wait until what was begun is valid. Raises as ``settle`` does."""
        self._copier.wait()
        begun, self._begun = self._begun, []
        for one in begun:
            one.require_untouched()
            one.require_same()

    def _durable_is_whole(self) -> None:
        self._control.durable_busy = True

    def _begin(self, index: int, step: int, data_state: dict[str, Any]) -> None:
        """Copy what moves, and leave what is still until the next optimizer step to ``go_on``."""
        if not self._rest:
            self.wait_whole()
        moving, objects = self._state.moving()
        self._plan(moving)
        target = self._targets[index]
        target.writer.begin()
        tensors = list(self._state.values())
        sources = [local_part(tensor) for tensor in tensors]
        still = [number for number, is_still in enumerate(self._still) if is_still]
        later = still if self._overlap else []
        waiting = frozenset(later)
        at_once = [number for number in range(len(sources)) if number not in waiting]
        _copy(
            [*(target.places[n] for n in at_once), *target.places[len(sources) :]],
            [*(sources[n] for n in at_once), *(tensor for _, tensor in moving)],
        )
        begun = _Begun(
            step=step,
            names=[self._names[n] for n in still],
            tensors=[tensors[n] for n in still],
            places=[target.places[n] for n in still],
            versions=[_version(tensors[n]) for n in later],
        )
        self._begun.append(begun)
        rest = [target.places[n] for n in later], [sources[n] for n in later]

        def finish() -> None:
            _copy(*rest)
            begun.require_untouched()  # else it stays invalid
            target.writer.commit(step=step, data_state=data_state, objects=objects)

        self._rest.append(finish)


class SlotSource:
    """A ``StateSource`` that reads an open slot and checks every byte it hands out.

    Raises:
        RestoreFailedError: from every method, when the snapshot does not fit or is damaged.
    """

    def __init__(self, reader: SlotReader) -> None:
        self._reader = reader

    def fill(self, name: str, tensor: Tensor) -> None:
        """Copy a kept tensor into ``tensor``."""
        entry = self._entry(name)
        if entry.dtype != _dtype_name(tensor) or entry.shape != tuple(tensor.shape):
            raise StateMismatchError(
                f"{name} was kept as {entry.dtype}{list(entry.shape)}, "
                f"now it is {_dtype_name(tensor)}{list(tensor.shape)}"
            )
        with torch.no_grad():
            tensor.copy_(self._read(entry))

    def make(self, name: str) -> Tensor:
        """Return a kept tensor as a new one."""
        return self._read(self._entry(name)).clone()

    def tree(self, name: str) -> Any:
        """Return a kept object."""
        try:
            data = self._reader.object_data(name)
        except CorruptData as error:
            raise RestoreFailedError(str(error)) from None
        if data is None:
            raise StateMismatchError(f"{self._reader.path} has no object {name}")
        return tree.decode(data, self.make)

    def _entry(self, name: str) -> Entry:
        entry = self._reader.entry(name)
        if entry is None:
            raise StateMismatchError(f"{self._reader.path} has no tensor {name}")
        return entry

    def _read(self, entry: Entry) -> Tensor:
        data = self._reader.tensor(entry)
        got = checksum_of(data)
        if got != entry.checksum:
            raise RestoreFailedError(
                f"{self._reader.path}: tensor {entry.name}: checksum expected {entry.checksum}, "
                f"got {got}"
            )
        dtype = getattr(torch, entry.dtype)
        if not entry.bytes:
            return torch.empty(entry.shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).view(entry.shape)


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    return TensorSpec(
        name=name,
        dtype=_dtype_name(tensor),
        shape=tuple(tensor.shape),
        bytes=tensor.numel() * tensor.element_size(),
    )


def _version(tensor: Tensor) -> int:
    """Count the changes in place; those of a DTensor are counted at itself or at its part."""
    own: int = tensor._version  # noqa: SLF001 - what autograd itself checks by
    part = local_part(tensor)
    return own if part is tensor else own + part._version  # noqa: SLF001 - as above


@torch.no_grad()
def _copy(places: list[Tensor], sources: list[Tensor]) -> None:
    """Copy all in one call: a call each costs more than the bytes of small tensors."""
    if places:
        torch._foreach_copy_(places, sources)


def _as_part(spec: TensorSpec, tensor: Tensor, paths: Mapping[str, tuple[str, ...]]) -> TensorSpec:
    if not is_known(spec.dtype) or not spec.bytes:
        return spec  # nothing of it, or nothing that torch.save could have written so
    part = Part(path=paths[spec.name], whole=tuple(tensor.shape), offsets=offsets_of(tensor))
    return replace(spec, part=part)


def _place(writer: SlotWriter, name: str, like: Tensor) -> Tensor:
    """Return a tensor that lies in the slot file."""
    if like.numel() == 0:
        return torch.empty(like.shape, dtype=like.dtype)
    return torch.frombuffer(writer.buffers[name], dtype=like.dtype).view(like.shape)
