"""Which checkpoints may go: all but the last few complete ones of the present history.

A checkpoint of which an object could not be used is not good. Never the last good one, never what
the newest restore plan names (its ranks may be loading it), and an abandoned branch or a bad one
only once the present history has its full number of checkpoints: until then somebody may still want
to go back to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from everstep.checkpoint_registry.manifest import prefix_of
from everstep.checkpoint_registry.state import History


class Reason(StrEnum):
    """Why a checkpoint goes."""

    RETENTION = "retention"  # more than keep_last newer ones are complete
    ABANDONED = "abandoned"  # of a branch that a later generation left
    SPOILT = "spoilt"  # an object of it could not be used
    SUPERSEDED = "superseded"  # never completed, and newer ones are


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A checkpoint that is not deleted."""

    step: int
    generation: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A checkpoint to delete."""

    step: int
    generation: int
    why: Reason


def removals(known: Sequence[Known], history: History) -> tuple[Removal, ...]:
    """Return what to delete now, oldest first.

    Args:
        known: every checkpoint of the job that is not deleted.
        history: of the same job.
    """
    keep_last = max(history.keep_last, 1)
    newest_first = sorted(known, key=lambda k: (k.step, k.generation), reverse=True)
    complete = [k for k in newest_first if k.complete]
    good = restorable(complete, history)
    if not good:
        return ()
    kept = good[:keep_last]
    doomed = dict.fromkeys(good[keep_last:], Reason.RETENTION)
    if len(kept) == keep_last:
        doomed |= {k: why for k in complete if (why := unusable(k, history)) is not None}
    for k in newest_first:
        late = k.generation < history.newest_generation and k.step < kept[0].step
        if not k.complete and (late or k.step < kept[-1].step):
            doomed[k] = Reason.SUPERSEDED
    planned = history.plan.step if history.plan is not None else None
    return tuple(
        Removal(step=k.step, generation=k.generation, why=why)
        for k, why in sorted(doomed.items(), key=lambda item: (item[0].step, item[0].generation))
        if k.step != planned
    )


def restorable(known: Sequence[Known], history: History) -> list[Known]:
    """Return the complete checkpoints of the present history that nobody has found bad."""
    return [k for k in known if k.complete and unusable(k, history) is None]


def unusable(known: Known, history: History) -> Reason | None:
    """Return why no restore takes a checkpoint, complete or not; None if one may."""
    if not _present(known, history):
        return Reason.ABANDONED
    return Reason.SPOILT if _spoilt(known, history) else None


def _present(known: Known, history: History) -> bool:
    return history.lineage.holds(generation=known.generation, step=known.step)


def _spoilt(known: Known, history: History) -> bool:
    return any(
        source.uri.startswith(prefix_of(source.job_id, known.step, known.generation))
        for source in history.distrusted
        if source.uri
    )
