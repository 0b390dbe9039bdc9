"""What the numbers of a simulated training are: which batches wreck it, and what its loss tells.

A batch that is guilty wrecks the state that is made from it, and every state that comes of that
one: their losses are raised, beginning with the step after. What the services make of it, they find
out from the losses alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from everstep.core.corrections import BatchSpan, Corrections, PositionRange
from everstep.data.loader import DataState
from everstep.wire.v1.common_pb2 import Corrections as WireCorrections

RAISED: Final = (
    1_000.0  # of a loss that falls from 1; early on only a leap stands out from the fall
)
TOLD_STEPS: Final = 16  # an agent tells of a step within a few


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the ranks tell of a step."""

    position: int
    loss: float


class Numbers:
    """Of all jobs of a world."""

    def __init__(self) -> None:
        self.guilty: dict[str, set[int]] = {}  # job -> positions of its batches
        self.wrecked: dict[str, int] = {}  # states by name, each with the first wrecked step

    def loss(self, state: str, step: int) -> float:
        """Return the loss of ``step``, that is, of the state that it begins with."""
        return RAISED if state in self.wrecked else 1.0 / step

    def made(self, job_id: str, before: str, state: str, position: int, step: int) -> None:
        """Note a state that was made from another one and a batch."""
        if before in self.wrecked or position in self.guilty.get(job_id, ()):
            self.wrecked[state] = self.wrecked.get(before, step)


class Course:
    """Which batches a generation trains on, and what it tells of its last few steps."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._data = DataState()
        self._told: dict[int, Told] = {}

    def begin(self, step: int, skipped: Sequence[PositionRange]) -> None:
        """Go on from a step, without some batches."""
        for one in skipped:
            self._data = self._data.skipping(one.first, one.end)
        self._data = self._data.seek(step)

    def made(self, job_id: str, step: int, before: str, state: str) -> int:
        """Take the next batch and make a step with it; returns the batch's position."""
        position = self._data.position
        self._data = self._data.advanced()
        self._numbers.made(job_id, before, state, position, step)
        self._told[step] = Told(position=position, loss=self._numbers.loss(before, step))
        self._told.pop(step - TOLD_STEPS, None)
        return position

    def told(self, step: int) -> Told:
        """Return what is told of one of the last steps."""
        return self._told.get(step, Told(position=step - 1, loss=1.0 / max(step, 1)))


def decode_corrections(message: WireCorrections) -> Corrections:
    """Return what a start says; the learning rate changes nothing here."""
    return Corrections(
        skipped=tuple(PositionRange(first=one.first, end=one.end) for one in message.skipped),
        batches=tuple(
            BatchSpan(after_step=one.after_step, samples=one.samples) for one in message.batches
        ),
    )
