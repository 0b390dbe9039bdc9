"""Notices what changes between optimizer steps although a snapshot of it is under way."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

from torch import Tensor

from everstep.core.errors import InvalidInput
from everstep.train.gradients import local_part

_version: Final = attrgetter("_version")  # the only way to ask
COMPARED_MAX: Final = 1 << 13  # elements: what is compared a step takes some microseconds


@dataclass(slots=True, kw_only=True)
class Begun:
    """A snapshot, and what must not change until the next optimizer step.

    ``tensors`` are the parameters and moments, ``places`` their copies. While they are still to be
    copied, nobody may touch them at all; once they are, a change that is taken back does no harm.
    ``versions`` count the changes in place of ``tensors`` and, because a DTensor's are counted at
    itself or at its part, of ``parts``, of which ``sharded`` are the numbers among ``tensors``.
    """

    step: int
    names: list[str]
    tensors: list[Tensor]
    places: list[Tensor]
    sharded: list[int]
    parts: list[Tensor]
    versions: list[int]  # empty when all was copied at once

    def count(self) -> list[int]:
        """Return the counts of now: autograd's own."""
        return list(map(_version, chain(self.tensors, self.parts)))

    def require_untouched(self) -> None:
        """Check by the counts. Raises InvalidInput."""
        if not self.versions:
            return
        now = self.count()
        if now == self.versions:
            return
        changed = next(n for n, (a, b) in enumerate(zip(now, self.versions, strict=True)) if a != b)
        own = len(self.tensors)
        name = self.names[changed if changed < own else self.sharded[changed - own]]
        self._refuse(name, "if it is put back before the next step: checkpoint.overlap")

    def require_same(self) -> None:
        """Compare one tensor, another one each step: ``.data`` moves no counter.

        Raises:
            InvalidInput: it is no longer what was kept.
        """
        if not self.names:
            return
        number = self.step % len(self.names)
        if _first_bytes(self.tensors[number]) != _first_bytes(self.places[number]):
            self._refuse(self.names[number], "")

    def _refuse(self, name: str, instead: str) -> None:
        other = f"; {instead}: false in the job spec" if instead else ""
        raise InvalidInput(
            f"{name} was changed between run.step() and the next one: the snapshot of step "
            f"{self.step} would not hold the change, or half of it. Change it before run.step() or "
            f"in a step hook of the optimizer{other}"
        )


def _first_bytes(tensor: Tensor) -> bytes:
    """Return the bytes of the first elements, in their order."""
    local = local_part(tensor)
    if not local.is_contiguous() or local.device.type != "cpu":
        local = local.detach().flatten()[:COMPARED_MAX].cpu()
    # By its address: torch's own ways to look at a tensor's bytes take longer than all else here.
    count = min(local.numel(), COMPARED_MAX)
    return ctypes.string_at(local.data_ptr(), count * local.element_size()) if count else b""
