"""Notices what changes between optimizer steps although a snapshot of it is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from everstep.core.errors import InvalidInput
from everstep.train.gradients import local_part

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
        counts = [one._version for one in self.tensors]  # noqa: SLF001 - the only way to ask
        return counts + [one._version for one in self.parts]  # noqa: SLF001 - as above

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
