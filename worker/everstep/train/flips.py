"""Flips single bits of a rank's state and of what it computes, as a faulty chip or memory does.

Parameters and moments are changed behind the update and before the snapshot of that step, so the
snapshot holds the wrong bit with a checksum that is right: only a comparison with other ranks, or
with the same work done again, can tell. A gradient is changed before data-parallel ranks reduce it
(all get the same wrong sum) or behind that (this rank goes on alone); an activation in the first
forward pass of a step, not where it is computed again. Only a flip in a snapshot leaves the run as
it is.

Which tensor, element and bit is said by the fault or follows from it, never from the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from everstep.core.errors import InvalidInput
from everstep.faults.chance import seeded
from everstep.faults.kinds import CHOSEN, Flip, Part
from everstep.memory.damage import flip_snapshot
from everstep.memory.layout import SLOT_COUNT, slot_path
from everstep.memory.slot import read_preamble
from everstep.train.gradients import local_part
from everstep.train.state import TrackedState

T = TypeVar("T")
Told = Callable[[Flip, Mapping[str, Any]], bool]
SetAside = Callable[[Flip, InvalidInput], None]

_UNSIGNED: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_BITS_OF_A_BYTE: Final = 8
NAMED_MAX: Final = 12  # enough to see how names are built; a model has hundreds


def flip_bit(tensor: Tensor, *, element: int, bit: int) -> tuple[float, float]:
    """Flip a bit of an element of the rank's part, in place; returns it before and after.

    Raises:
        InvalidInput: it has no such element or bit.
    """
    local = local_part(tensor).detach()
    _require_bit(local, element, bit)
    bits = local.element_size() * _BITS_OF_A_BYTE
    place = tuple(int(one) for one in torch.unravel_index(torch.tensor(element), local.shape))
    one = local[place].reshape(1)
    before = float(one.item())
    number = one.clone().view(_UNSIGNED[local.element_size()])
    mask = -(1 << bit) if bit == bits - 1 and bits > _BITS_OF_A_BYTE else 1 << bit
    number ^= mask
    with torch.no_grad():
        local[place] = number.view(local.dtype)[0]
    return before, float(local[place].item())


def _require_bit(local: Tensor, element: int, bit: int) -> None:
    bits = local.element_size() * _BITS_OF_A_BYTE
    if not (0 <= element < local.numel() and 0 <= bit < bits):
        raise InvalidInput(
            f"there is no bit {bit} of element {element} to flip: the rank's part has "
            f"{local.numel()} elements of {bits} bits"
        )


def refuse(_: Flip, error: InvalidInput) -> None:
    """Raise what is wrong with a flip."""
    raise error


class Flips:
    """Carries out one rank's flips.

    Args:
        flips: those of this rank.
        strikes: is told of each before it is done, with what will be done, and says whether it may.
        snapshots: the directory of the rank's snapshots; None: there are none.
        set_aside: is told of each that names what this rank has not; unless it raises, the rank
            goes on without it.
    """

    def __init__(
        self,
        flips: Sequence[Flip],
        strikes: Told,
        snapshots: Path | None,
        *,
        set_aside: SetAside = refuse,
    ) -> None:
        self._flips = tuple(flips)
        self._strikes = strikes
        self._set_aside = set_aside
        self._snapshots = snapshots
        self._state: TrackedState | None = None
        self._step = 0

    def watch(self, state: TrackedState, step: int) -> None:
        """Take the state that there is after a restore, and hook what is to be changed in passing.

        Raises:
            InvalidInput: a flip names what this rank has not, and ``set_aside`` raises.
        """
        self._state, self._step = state, step
        for flip in self._flips:
            with self._setting_aside(flip):
                self._prepare(flip)

    def _prepare(self, flip: Flip) -> None:
        match flip.part:
            case Part.ACTIVATION:
                self._hook_activation(flip)
            case Part.GRADIENT:
                self._hook_gradient(flip)
            case Part.PARAMETER:
                _, tensor = _chosen(flip, self._parameters())
                place_in(flip, local_part(tensor))
            case Part.REDUCED_GRADIENT:
                _chosen(flip, self._parameters())
            case _:
                pass

    @contextlib.contextmanager
    def _setting_aside(self, flip: Flip) -> Iterator[None]:
        """Go on without a flip that turns out to be impossible, if whoever is told lets us."""
        try:
            yield
        except InvalidInput as error:
            self._flips = tuple(one for one in self._flips if one is not flip)
            self._set_aside(flip, error)

    def reduced(self, step: int) -> None:
        """Act on gradients that are ready for the update."""
        self._act(step, Part.REDUCED_GRADIENT)

    def updated(self, step: int) -> None:
        """Act on what the update has changed, and on the snapshot that was taken before it."""
        for part in (Part.PARAMETER, Part.MOMENT, Part.SNAPSHOT):
            self._act(step, part)
        self._step = step + 1

    def _act(self, step: int, part: Part) -> None:
        for flip in self._flips:
            if flip.part is not part or not flip.is_on(step):
                continue
            if part is Part.SNAPSHOT:
                self._flip_snapshot(flip)
                continue
            with self._setting_aside(flip):
                name, tensor = _chosen(flip, self._candidates(part))
                self._flip(flip, name, tensor)

    def _candidates(self, part: Part) -> dict[str, Tensor]:
        match part:
            case Part.PARAMETER:
                return self._parameters()
            case Part.MOMENT:
                return self._moments()
            case _:
                pairs = self._parameters().items()
                return {name: one.grad for name, one in pairs if one.grad is not None}

    def _flip(self, flip: Flip, name: str, tensor: Tensor) -> None:
        element, bit = place_in(flip, local_part(tensor))
        if self._strikes(flip, {"tensor": name, "element": element, "bit": bit}):
            flip_bit(tensor, element=element, bit=bit)

    def _flip_snapshot(self, flip: Flip) -> None:
        paths = (
            [slot_path(self._snapshots, n) for n in range(SLOT_COUNT)] if self._snapshots else []
        )
        found = [(held.step, path) for path in paths if (held := read_preamble(path)) is not None]
        if found and self._strikes(flip, {"snapshot_step": max(found)[0]}):
            flip_snapshot(max(found)[1], seed=seed_of(flip), tensor=flip.tensor)

    def _hook_activation(self, flip: Flip) -> None:
        name, module = _chosen(flip, self._modules(leaves=not flip.tensor))

        def act(_: nn.Module, __: Any, output: Any) -> Any:
            first = output[0] if isinstance(output, tuple) else output
            if not flip.is_on(self._step) or not isinstance(first, Tensor):
                return None
            with self._setting_aside(flip):
                element, bit = place_in(flip, local_part(first))
                if not self._strikes(flip, {"tensor": name, "element": element, "bit": bit}):
                    return None
                handle.remove()
                wrong = first.clone()
                flip_bit(wrong, element=element, bit=bit)
                return (wrong, *output[1:]) if isinstance(output, tuple) else wrong
            handle.remove()
            return None

        handle = module.register_forward_hook(act)

    def _hook_gradient(self, flip: Flip) -> None:
        name, _ = _chosen(flip, self._parameters())
        owner, _, key = name.rpartition(".")
        hooked: list[RemovableHandle] = []

        def act(gradient: Tensor) -> Tensor | None:
            for handle in hooked:
                handle.remove()
            with self._setting_aside(flip):
                element, bit = place_in(flip, local_part(gradient))
                if not self._strikes(flip, {"tensor": name, "element": element, "bit": bit}):
                    return None
                wrong = gradient.clone()
                flip_bit(wrong, element=element, bit=bit)
                return wrong
            return None

        def begin(module: nn.Module, _: Any) -> None:
            # The gathered parameter is there by now: its gradient is this rank's own.
            if flip.is_on(self._step) and not hooked and torch.is_grad_enabled():
                hooked.append(getattr(module, key).register_hook(act))

        self._modules(leaves=False)[owner].register_forward_pre_hook(begin)

    def _parameters(self) -> dict[str, Tensor]:
        return {name: one for name, one in self._tensors() if isinstance(one, nn.Parameter)}

    def _moments(self) -> dict[str, Tensor]:
        assert self._state is not None, "watch comes first"
        begins = tuple(f"{name}.state." for name in self._state.optimizers)
        # A count of steps is no moment: with its sign flipped, optimizers leave the real numbers.
        moments = ((name, one) for name, one in self._tensors() if one.dim())
        return {name: one for name, one in moments if name.startswith(begins)}

    def _tensors(self) -> list[tuple[str, Tensor]]:
        assert self._state is not None, "watch comes first"
        tensors = self._state.tensors()
        return [(name, one) for name, one in tensors if local_part(one).numel()]

    def _modules(self, *, leaves: bool = True) -> dict[str, nn.Module]:
        assert self._state is not None, "watch comes first"
        return {
            f"{name}.{path}".rstrip("."): part
            for name, module in self._state.modules.items()
            for path, part in module.named_modules()
            if not leaves or not list(part.children())
        }


def place_in(flip: Flip, local: Tensor) -> tuple[int, int]:
    """Return which element and bit of a tensor are meant. Raises InvalidInput: there is none."""
    choice = seeded(seed_of(flip))
    element = choice.randrange(local.numel())
    bit = choice.randrange(local.element_size() * _BITS_OF_A_BYTE)
    element = element if flip.element == CHOSEN else flip.element
    bit = bit if flip.bit == CHOSEN else flip.bit
    _require_bit(local, element, bit)
    return element, bit


def seed_of(flip: Flip) -> str:
    """Return what all choices of a flip follow from."""
    return f"{flip.rank} {flip.step} {flip.part} {flip.tensor}"


def _chosen(flip: Flip, candidates: Mapping[str, T]) -> tuple[str, T]:
    """Return the tensor or module that a flip names, or chooses.

    Raises:
        InvalidInput: there is none of that name.
    """
    wanted = flip.tensor
    fitting = sorted(n for n in candidates if n == wanted or n.endswith(f".{wanted}") or not wanted)
    if not fitting:
        named = sorted(candidates)
        more = len(named) - NAMED_MAX
        there = ", ".join(named[:NAMED_MAX]) or "none"
        raise InvalidInput(
            f"no {flip.part} {wanted!r} to flip a bit of on rank {flip.rank}: there are {there}"
            f"{f' and {more} more' if more > 0 else ''}"
        )
    name = fitting[0] if wanted else seeded(seed_of(flip)).choice(fitting)
    return name, candidates[name]
