"""Which checkpoints may go, and what no rule may take.

Kept are, of the *good* ones (complete, of the present history, with no bad object, not suspect):
the last few, the newest of each of the last days on which one was completed, and the one before
each numerical incident that is not resolved. Where work is done again to find chips that compute
wrong, the oldest of each of the last three stretches in which that may go unseen is kept, too: the
last few may all be from after it began, where saves are close together. Kept besides: what is
pinned, what the newest restore plan names (its ranks may be loading it), and the step that a person
goes back to, while that generation has no plan yet (it may wait for hosts). The last good one is
among the last few, whatever the rule says.

What is not good goes once the last few are there: until then somebody may still want it, and the
oldest and the newest few stay, of suspects and of the others. One that a look at its objects found
damaged stays until it is older than those, because the look may have been wrong. Suspects wait
longer, until what they are suspected of is resolved: a person may clear them. Of those that wait,
too, the oldest and the newest few stay: the oldest are the likeliest to be cleared, the newest are
worth most, and a run that trains on, or goes back again and again, must not fill the store.

What was never completed goes once newer ones are; not while all of it is stored, because then the
keeper reads it back, and it is complete, or lacks something, soon.

Days are UTC days on which something was completed, not those of a calendar: a job that was paused
for a month comes back to what it left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from everstep.checkpoint_registry.commands import Known
from everstep.checkpoint_registry.events import Removal
from everstep.checkpoint_registry.object_keys import prefix_of
from everstep.checkpoint_registry.state import History
from everstep.checkpoint_registry.trust import Trust, unresolved
from everstep.core.spec import JobSpec
from everstep.core.time import HOUR_MS

DAY_MS: Final = 24 * HOUR_MS
STRETCHES_KEPT: Final = 3
# Wrong work that another replica, or an audit, does again shows at the next such step; it may be
# some before the steps that came out alike are known, or a whole generation is between. Chosen, not
# measured.
UNSEEN_ROUNDS: Final = 4


class Reason(StrEnum):
    """Why a checkpoint goes."""

    RETENTION = "retention"  # good, and more than what is kept
    ABANDONED = "abandoned"  # of a branch that a later generation left
    SPOILT = "spoilt"  # an object of it could not be used, or is not what was stored
    SUSPECT = "suspect"  # made when the numbers may have been bad
    SUPERSEDED = "superseded"  # never completed, and newer ones are


def removals(known: Sequence[Known], history: History) -> tuple[Removal, ...]:
    """Return what to delete now, oldest first.

    Args:
        known: checkpoints of the job that are not deleted, as far as one knows.
        history: of the same job.
    """
    going = history.removed_ids
    newest_first = sorted(
        (k for k in known if (k.step, k.generation) not in going),
        key=lambda k: (k.step, k.generation),
        reverse=True,
    )
    complete = [k for k in newest_first if k.complete]
    good = restorable(complete, history)
    keep_last = max(history.keep_last, 1)
    last = good[:keep_last]
    doomed = dict.fromkeys(good[keep_last:], Reason.RETENTION)
    bad = {k: why for k in complete if (why := unusable(k, history)) is not None}
    oldest = last[-1].step if len(last) == keep_last else 0
    doomed |= {k: why for k, why in bad.items() if not _only_looked_at(k, history, oldest)}
    for k in newest_first if good else ():
        late = k.generation < history.newest_generation and k.step < last[0].step
        if not k.complete and not k.whole and (late or k.step < last[-1].step):
            doomed[k] = Reason.SUPERSEDED
    for k in _kept(newest_first, good, history):
        doomed.pop(k, None)
    return tuple(
        Removal(step=k.step, generation=k.generation, why=why.value)
        for k, why in sorted(doomed.items(), key=lambda item: (item[0].step, item[0].generation))
    )


def restorable(known: Sequence[Known], history: History) -> list[Known]:
    """Return the good ones: complete, and nothing keeps a restore from taking them."""
    return [k for k in known if k.complete and unusable(k, history) is None]


def unusable(known: Known, history: History) -> Reason | None:
    """Return why no restore takes a checkpoint, complete or not; None if one may."""
    if not _present(known, history):
        return Reason.ABANDONED
    if _spoilt(known, history):
        return Reason.SPOILT
    return Reason.SUSPECT if _suspect(known, history) else None


def unseen_steps(spec: JobSpec) -> int:
    """Return within how many steps wrong work is taken to be found; 0: nobody looks for it.

    Each audit looks at one replica, so all are seen after as many of them.
    """
    rules = spec.corruption
    checkpoints = rules.audit_every_checkpoints * spec.layout.dp_replicate
    audited = checkpoints * spec.checkpoint.object_every_steps
    seen_every = min((one for one in (rules.recompute_every_steps, audited) if one), default=0)
    return UNSEEN_ROUNDS * seen_every


def _kept(known: Sequence[Known], good: Sequence[Known], history: History) -> Iterable[Known]:
    """Return what stays whatever else is said of it; ``known`` and ``good`` are newest first."""
    needed = {history.wanted_step} | ({history.plan.step} if history.plan is not None else set())
    pinned = history.pinned_ids
    yield from (k for k in known if k.step in needed or (k.step, k.generation) in pinned)
    yield from _of_days(good, history.keep_days)
    if history.unseen_steps:
        yield from _of_stretches(good, history.unseen_steps)
    open_ones = unresolved(history.beliefs, history.lineage)
    for suspicion in open_ones:
        yield from [k for k in good if k.step < suspicion.from_step][:1]
    bad = {k: why for k in known if k.complete and (why := unusable(k, history)) is not None}
    suspects = [k for k, why in bad.items() if why is Reason.SUSPECT]
    others = [k for k, why in bad.items() if why is not Reason.SUSPECT]
    waiting = [
        k
        for k in suspects
        if any(one.covers(generation=k.generation, step=k.step) for one in open_ones)
    ]
    few = max(history.keep_last, 1)
    for some in (waiting, *((suspects, others) if len(good) < few else ())):
        yield from some[:few]
        yield from some[-few:]


def _of_days(good: Sequence[Known], days: int) -> list[Known]:
    """Return the newest good one of each of the last days on which one was completed."""
    newest: dict[int, Known] = {}
    for k in good:
        newest.setdefault(k.completed_ms // DAY_MS, k)
    return [newest[day] for day in sorted(newest, reverse=True)[:days]]


def _of_stretches(good: Sequence[Known], steps: int) -> list[Known]:
    """Return the oldest good one of each of the last stretches of so many steps that have one.

    The third is at least that many steps behind the newest, and the first one there is at first.
    """
    oldest = {k.step // steps: k for k in good}
    return [oldest[one] for one in sorted(oldest, reverse=True)[:STRETCHES_KEPT]]


def _present(known: Known, history: History) -> bool:
    return history.lineage.holds(generation=known.generation, step=known.step)


def _suspect(known: Known, history: History) -> bool:
    judged = history.judge(generation=known.generation, step=known.step)
    return judged.trust is Trust.SUSPECT


def _only_looked_at(known: Known, history: History, oldest: int) -> bool:
    """Whether all that is against it is a look that may have been wrong, and it is not old yet.

    Whoever looked may sit behind a bad disk or line: another look can still find it whole.
    """
    return (
        known.step >= oldest
        and _damaged(known, history)
        and not _refused(known, history)
        and _present(known, history)
    )


def _spoilt(known: Known, history: History) -> bool:
    return _damaged(known, history) or _refused(known, history)


def _damaged(known: Known, history: History) -> bool:
    check = history.check_of(generation=known.generation, step=known.step)
    return check is not None and bool(check.bad_ranks)


def _refused(known: Known, history: History) -> bool:
    return any(
        source.uri.startswith(prefix_of(source.job_id, known.step, known.generation))
        for source in history.distrusted
        if source.uri
    )
