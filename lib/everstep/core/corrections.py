"""What a run's course is changed by: its numbers have gone wrong, or it has fewer ranks.

All of it is told at every start, because a state from before a change does not know of it. Nothing
else may change what a step computes, so that a run that was corrected ends with the very bits of
one that was told from its beginning.
"""

from __future__ import annotations

from typing import Final

from everstep.core.record import Record


class PositionRange(Record, frozen=True, kw_only=True):
    """Positions ``first`` to ``end`` - 1 of the stream of global batches."""

    first: int
    end: int


class RateSpan(Record, frozen=True, kw_only=True):
    """While steps ``after_step`` + 1 to ``until_step`` are made, the learning rate is scaled."""

    after_step: int
    until_step: int
    factor: float


class BatchSpan(Record, frozen=True, kw_only=True):
    """Steps after ``after_step`` are made from global batches of ``samples``, until another span.

    The stream of samples goes on where the batch before ended.
    """

    after_step: int
    samples: int


class Corrections(Record, frozen=True, kw_only=True):
    """Batches that are never trained on, spans of another learning rate and of smaller batches."""

    skipped: tuple[PositionRange, ...] = ()
    rates: tuple[RateSpan, ...] = ()
    batches: tuple[BatchSpan, ...] = ()

    def rate_at(self, step: int) -> float:
        """Return what the learning rate is multiplied by while ``step`` is made (from 1)."""
        factor = 1.0
        for span in self.rates:
            if span.after_step < step <= span.until_step:
                factor *= span.factor
        return factor


NO_CORRECTIONS: Final = Corrections()
