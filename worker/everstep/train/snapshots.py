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
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.memory.control import NO_STEP, Control
from everstep.memory.layout import SLOT_COUNT, control_path, durable_path, slot_path
from everstep.memory.parts import CIRCLES_NAME
from everstep.memory.slot import invalidate, read_preamble
from everstep.memory.torch_file import is_known
from everstep.memory.writer import Owner, Part, SlotWriter, TensorSpec, slot_bytes
from everstep.train.begun import Begun
from everstep.train.copier import Copier
from everstep.train.endings import too_small_without_room
from everstep.train.fingerprints import Fingerprints
from everstep.train.gradients import local_part, offsets_of
from everstep.train.pinning import Pinned
from everstep.train.places import NamedTensors
from everstep.train.slot_source import dtype_name
from everstep.train.state import TrackedState

_DURABLE: Final = SLOT_COUNT  # index behind the memory slots
_kind: Final = attrgetter("shape", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large a rank's files are [bytes]; there are two slots and one durable one."""

    slot_bytes: int
    durable_bytes: int


def _admitted(sizes: Sizes) -> None:
    """Let any size pass: the file system will tell."""


@dataclass(slots=True, kw_only=True)
class _Target:
    """A slot file with tensors that lie in it."""

    writer: SlotWriter
    places: list[Tensor]
    still: list[Tensor]  # those of what only optimizer steps change
    pinned: Pinned


class Snapshots:
    """A rank's slots.

    Args:
        directory: of the rank's own snapshots.
        owner: goes into every header.
        state: what to keep.
        overlap: leave the copies of what is still between optimizer steps to the thread; else only
            the checksums.
        fingerprints: are made of the checksums.
    """

    def __init__(
        self,
        directory: Path,
        owner: Owner,
        state: TrackedState,
        *,
        overlap: bool = True,
        fingerprints: Fingerprints | None = None,
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._state = state
        self._overlap = overlap
        self.fingerprints = fingerprints or Fingerprints(Layout(), 0, 0)
        self._control = Control(control_path(directory))
        self._planned: tuple[Any, ...] = ()
        self._specs: list[TensorSpec] = []
        self._names: list[str] = []
        self._kinds: list[tuple[torch.Size, torch.dtype]] = []
        self._sharded: list[int] = []
        self._still: list[int] = []
        self._still_sharded: list[int] = []  # positions in the list above
        self._still_names: list[str] = []
        self._targets: dict[int, _Target] = {}
        self._held_slot = 1  # so that a fresh run begins with slot 0
        self.held_step = self._whole_step = NO_STEP
        self._copier = Copier(state.device)
        self._begun: list[Begun] = []
        self._rest: list[Callable[[], None]] = []

    @property
    def replicated(self) -> bool:
        """Whether the newest memory snapshot also lies in the peer's memory, or there is none.

        Without a peer it is enough that it is whole: another rank may overwrite its older one then.
        """
        control = self._control
        held = self.held_step
        if held == NO_STEP or control.replicated_step >= held:
            return True
        return control.replication_off and self._whole_step == held

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
        self.held_step = self._whole_step = step
        other = slot_path(self._directory, 1 - slot)
        preamble = read_preamble(other)
        if preamble is not None and preamble.step >= step:
            invalidate(other)

    def begun_afresh(self) -> None:
        """Forget whatever an earlier attempt from the beginning has left."""
        for slot in range(SLOT_COUNT):
            invalidate(slot_path(self._directory, slot))

    def prepare(self, admit: Callable[[Sizes], None] = _admitted) -> None:
        """Create and touch the slot files, with room for what optimizers will make.

        Args:
            admit: is told how large the files will be before there is any, and raises if that is
                too much.

        Raises:
            HostTooSmallError: there is not enough memory after all.
        """
        moving, _ = self._state.moving()
        self._plan(moving, foreseen=True, admit=admit)
        if self.held_step != NO_STEP:
            self.fingerprints.begin(self.held_step)
            self.fingerprints.take_kept(slot_path(self._directory, self._held_slot), self._names)

    def _plan(
        self,
        moving: NamedTensors,
        *,
        foreseen: bool = False,
        admit: Callable[[Sizes], None] = _admitted,
    ) -> None:
        wanted = (self._state.signature(), [(name, *_kind(tensor)) for name, tensor in moving])
        if wanted == self._planned:
            return
        whole = self._state.tensors(foreseen=foreseen)
        fixed = [(name, local_part(tensor)) for name, tensor in whole]
        specs = [_spec(name, tensor) for name, tensor in [*fixed, *moving]]
        self._refuse_changes(specs)
        self._names = [name for name, _ in whole]
        self._kinds = [_kind(tensor) for _, tensor in fixed]
        self._sharded = [n for n, (_, one) in enumerate(whole) if isinstance(one, DTensor)]
        still = self._state.still(foreseen=foreseen)
        self._still = [number for number, name in enumerate(self._names) if name in still]
        sharded = set(self._sharded)
        self._still_sharded = [at for at, number in enumerate(self._still) if number in sharded]
        if specs != self._specs:
            # What a rank has for itself (random states) is no part of a checkpoint of PyTorch.
            paths = self._state.paths(foreseen=foreseen)
            parts = [_as_part(spec, tensor, paths) for spec, (_, tensor) in zip(specs, whole)]  # noqa: B905 - the moving ones stay as they are
            durable = [*parts, *specs[len(parts) :]]
            admit(Sizes(slot_bytes=slot_bytes(specs), durable_bytes=slot_bytes(durable)))
            self._open(specs, durable, [*fixed, *moving])
        self._still_names = [self._names[n] for n in self._still]
        self.fingerprints.plan(self._names, self._state.shared(foreseen=foreseen))
        for target in self._targets.values():
            target.still = [target.places[n] for n in self._still]
        self._planned = wanted

    def _open(
        self, specs: list[TensorSpec], durable: list[TensorSpec], tensors: NamedTensors
    ) -> None:
        self._close()
        for index in (*range(SLOT_COUNT), _DURABLE):
            if index == _DURABLE:
                path, kept = durable_path(self._directory), durable
            else:
                path, kept = slot_path(self._directory, index), specs
            with too_small_without_room():
                writer = SlotWriter(path, self._owner, kept)
            pinned = Pinned(writer.memory, self._state.device)
            places = [_place(writer, name, tensor) for name, tensor in tensors]
            self._targets[index] = _Target(writer=writer, places=places, still=[], pinned=pinned)
        self._specs = specs

    def _refuse_changes(self, specs: list[TensorSpec]) -> None:
        """Check that what had a place fits it. Raises InvalidInput, naming what does not."""
        before = {spec.name: spec for spec in self._specs}
        for spec in specs:
            kept = before.get(spec.name)
            if kept is not None and (kept.dtype, kept.shape) != (spec.dtype, spec.shape):
                raise InvalidInput(
                    f"{spec.name} was {kept.dtype}{list(kept.shape)} and is "
                    f"{spec.dtype}{list(spec.shape)} now: what run.track() was given keeps its "
                    "shapes and dtypes as long as the run; make it its full size from the start, "
                    "or keep what grows as a list in an object with state_dict()"
                )

    def _close(self) -> None:
        for target in self._targets.values():
            target.places.clear()  # the tensors hold the file's mapping
            target.still.clear()
            target.pinned.close()
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
        tensors, sources = self._sources()
        self.fingerprints.begin(step)
        objects[CIRCLES_NAME] = self.fingerprints.encoded
        later = self._still if self._overlap else []
        waiting = frozenset(later)
        at_once = [number for number in range(len(sources)) if number not in waiting]
        self._require_kinds(sources, at_once)
        self._copy(
            [*(target.places[n] for n in at_once), *target.places[len(sources) :]],
            [*(sources[n] for n in at_once), *(tensor for _, tensor in moving)],
        )
        begun = self._begun_with(step, target, tensors, sources)
        self._begun.append(begun)

        def finish() -> None:
            self._require_kinds(sources, later)
            if later:
                self._copy(target.still, [sources[n] for n in later])
            begun.require_untouched()  # else it stays invalid
            with too_small_without_room():
                target.writer.commit(step=step, data_state=data_state, objects=objects)
            self.fingerprints.take(step, target.writer.checksums)
            if index != _DURABLE:
                self._whole_step = step

        self._rest.append(finish)

    def _begun_with(
        self, step: int, target: _Target, tensors: list[Tensor], sources: list[Tensor]
    ) -> Begun:
        still = self._still
        sharded = self._still_sharded
        begun = Begun(
            step=step,
            names=self._still_names,
            tensors=[tensors[n] for n in still],
            places=target.still,
            sharded=sharded,
            parts=[sources[still[n]] for n in sharded],
            versions=[],
        )
        if self._overlap:
            begun.versions = begun.count()
        return begun

    def _sources(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return what is tracked now, and the rank's parts of it."""
        tensors = self._state.values()
        sources = tensors.copy()
        for number in self._sharded:
            sources[number] = local_part(tensors[number])
        return tensors, sources

    def _require_kinds(self, sources: list[Tensor], numbers: list[int]) -> None:
        """Check shapes and dtypes: copying would broadcast or round. Raises InvalidInput."""
        if [_kind(sources[n]) for n in numbers] != [self._kinds[n] for n in numbers]:
            self._refuse_changes([_spec(self._names[n], sources[n]) for n in numbers])

    @torch.no_grad()
    def _copy(self, places: list[Tensor], sources: list[Tensor]) -> None:
        """Copy all in one call: a call each costs more than the bytes of small tensors."""
        if not places:
            return
        torch._foreach_copy_(places, sources, non_blocking=True)
        if self._state.device.type == "cuda":
            torch.cuda.current_stream(self._state.device).synchronize()


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    return TensorSpec(
        name=name,
        dtype=dtype_name(tensor),
        shape=tuple(tensor.shape),
        bytes=tensor.numel() * tensor.element_size(),
    )


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
