"""Applies what a run's course was changed by: batches left out, and a lower learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch.optim import Optimizer

from everstep.core.corrections import Corrections
from everstep.core.spec import JobSpec
from everstep.data.loader import DataState


def corrected(state: DataState, spec: JobSpec, corrections: Corrections) -> DataState:
    """Return the data state without the batches that the spec or a correction leaves out.

    A state from before a correction does not know of it; one that does is returned as it is.
    """
    for first, end in spec.data.skipped if spec.data is not None else ():
        state = state.skipping(first, end)
    for one in corrections.skipped:
        state = state.skipping(one.first, one.end)
    return state


def batch_sizes(state: DataState, corrections: Corrections) -> tuple[tuple[int, int], ...]:
    """Return from which positions on batches had which sizes; none if they never changed.

    Args:
        state: corrected, so that it knows every batch that is left out.
        corrections: say it by step.
    """
    beginning = DataState(skipped=state.skipped)
    found = [(beginning.seek(s.after_step).position, s.samples) for s in corrections.batches]
    return tuple((at if index else 0, samples) for index, (at, samples) in enumerate(found))


@contextmanager
def scaled_rates(optimizers: Sequence[Optimizer], factor: float) -> Iterator[None]:
    """Multiply every learning rate by ``factor`` for as long as this is entered.

    The rates are put back as they were, so that a scheduler goes on from its own.
    """
    if factor == 1.0:
        yield
        return
    groups = [group for one in optimizers for group in one.param_groups]
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
