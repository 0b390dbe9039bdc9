"""Two aggregates: one checkpoint, and one job's history of generations and restores.

A checkpoint is its own stream, because thousands of hosts report to it and nothing else contends.
The history is small and decides what may be restored. ``evolve_*`` never refuses a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from everstep.checkpoint_registry.events import (
    KEEP_DAYS_DEFAULT,
    CheckpointChecked,
    CheckpointCompleted,
    CheckpointDeleted,
    CheckpointEvent,
    CheckpointPinned,
    CheckpointPurged,
    CheckpointsSuspected,
    CheckpointUnpinned,
    GenerationNoted,
    HistoryEvent,
    JobNoted,
    Removal,
    RemovalsDecided,
    RestoreLaidOut,
    RestorePlanned,
    Shard,
    ShardsRefused,
    ShardsStored,
    SourceDistrusted,
    SuspicionEnded,
    TrustDecided,
)
from everstep.checkpoint_registry.lineage import Lineage, Restart, lineage_of
from everstep.checkpoint_registry.object_keys import prefix_of
from everstep.checkpoint_registry.trust import (
    Beliefs,
    Ending,
    Judgement,
    Suspicion,
    Trust,
    Word,
    judge,
    relevant,
)
from everstep.core.placement import Layout

# Bad copies are rare; a thousand means that a store is broken, and its checkpoints then are refused
# one after the other anyway.
DISTRUSTED_MAX: Final = 1_000
# Removals that were decided are remembered behind their deletion: whoever has read the list of
# checkpoints before it must not count a deleted one as kept. That read is seconds old at most.
REMOVALS_MAX: Final = 1_000
# One of each checkpoint that is there; more than are ever kept.
CHECKS_MAX: Final = 1_000
NAMED_MAX: Final = 8  # ranks in one sentence
KEEP_LAST_DEFAULT: Final = 3  # as core.spec.CheckpointSpec; until the job's spec is known


class Phase(StrEnum):
    """How far a checkpoint is; only ``COMPLETE`` may be restored from."""

    COLLECTING = "collecting"
    STORED = "stored"  # every rank has reported: to be read back
    COMPLETE = "complete"
    DELETED = "deleted"  # objects may be left
    PURGED = "purged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that is known of one step's checkpoint by one generation."""

    job_id: str = ""
    step: int = -1
    generation: int = 0
    world_size: int = 0
    shards: Mapping[int, Shard] = field(default_factory=dict)
    data_state: str = ""
    stored_ms: int = 0  # when the newest shard was reported
    manifest_uri: str = ""
    completed_ms: int = 0
    deleted: str = ""  # why
    purged: bool = False

    @property
    def phase(self) -> Phase:
        """Return how far it is."""
        if self.deleted:
            return Phase.PURGED if self.purged else Phase.DELETED
        if self.manifest_uri:
            return Phase.COMPLETE
        whole = 0 < self.world_size == len(self.shards)
        return Phase.STORED if whole else Phase.COLLECTING

    @property
    def sorted_shards(self) -> tuple[Shard, ...]:
        """Return the shards by rank."""
        return tuple(shard for _, shard in sorted(self.shards.items()))


def evolve_checkpoint(checkpoint: Checkpoint, event: CheckpointEvent) -> Checkpoint:
    """Return the checkpoint after ``event``."""
    match event:
        case ShardsStored():
            return replace(
                checkpoint,
                job_id=event.job_id,
                step=event.step,
                generation=event.generation,
                world_size=event.world_size,
                shards={**checkpoint.shards, **{shard.rank: shard for shard in event.shards}},
                data_state=checkpoint.data_state or event.data_state,
                stored_ms=max(checkpoint.stored_ms, event.at_ms),
            )
        case ShardsRefused():
            good = {rank: s for rank, s in checkpoint.shards.items() if s.uri != event.uri}
            return replace(checkpoint, shards=good)
        case CheckpointCompleted():
            return replace(checkpoint, manifest_uri=event.manifest_uri, completed_ms=event.at_ms)
        case CheckpointDeleted():
            return replace(checkpoint, deleted=event.why)
        case CheckpointPurged():
            return replace(checkpoint, purged=True)
        case _:
            assert_never(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A job's generations, what is thought of their states, and what is kept.

    ``plan`` is the newest generation's that has one, ``wanted_step`` what a person has named for
    one that has none yet (-1: nothing); ``removed`` is what retention gave up, the newest last.
    ``layouts`` are those that generations have had since (first generation, layout), the newest
    last; before the first one of them it was the spec's, ``layout``. ``checks`` are the newest
    looks at the objects of checkpoints that are there.
    """

    keep_last: int = KEEP_LAST_DEFAULT
    keep_days: int = KEEP_DAYS_DEFAULT
    unseen_steps: int = 0
    layout: Layout | None = None
    newest_generation: int = 0
    wanted_step: int = -1
    lineage: Lineage = field(default_factory=Lineage)
    distrusted: tuple[SourceDistrusted, ...] = ()
    plan: RestoreLaidOut | None = None
    passed_over: tuple[str, ...] = ()
    beliefs: Beliefs = field(default_factory=Beliefs)
    pins: tuple[CheckpointPinned, ...] = ()
    removed: tuple[Removal, ...] = ()
    layouts: tuple[tuple[int, Layout], ...] = ()
    checks: tuple[CheckpointChecked, ...] = ()

    def layout_of(self, generation: int) -> Layout | None:
        """Return the layout of a generation's ranks; None if nobody has said."""
        since = [layout for first, layout in self.layouts if first <= generation]
        return since[-1] if since else self.layout

    def judge(self, *, generation: int, step: int) -> Judgement:
        """Say what a state is worth."""
        return judge(self.beliefs, self.lineage, generation=generation, step=step)

    def check_of(self, *, generation: int, step: int) -> CheckpointChecked | None:
        """Return the newest look at a checkpoint's objects; None if nobody has looked again."""
        found = (c for c in self.checks if (c.step, c.generation) == (step, generation))
        return next(found, None)

    @property
    def removed_ids(self) -> frozenset[tuple[int, int]]:
        """Return (step, generation) of what retention has given up."""
        return frozenset((one.step, one.generation) for one in self.removed)

    @property
    def pinned_ids(self) -> frozenset[tuple[int, int]]:
        """Return (step, generation) of what is pinned."""
        return frozenset((pin.step, pin.generation) for pin in self.pins)


def evolve_history(history: History, event: HistoryEvent) -> History:
    """Return the history after ``event``."""
    match event:
        case JobNoted():
            return replace(
                history,
                keep_last=event.keep_last,
                keep_days=event.keep_days,
                unseen_steps=event.unseen_steps,
                layout=event.layout,
            )
        case GenerationNoted():
            newest = max(history.newest_generation, event.generation)
            return replace(history, newest_generation=newest, wanted_step=event.from_step)
        case SourceDistrusted():
            known = (*history.distrusted, event)
            return replace(history, distrusted=known[-DISTRUSTED_MAX:])
        case RestoreLaidOut():
            layouts = history.layouts
            if event.layout not in {None, history.layout_of(event.generation)}:
                layouts = (*layouts, (event.generation, event.layout))
            return replace(history, plan=event, wanted_step=-1, layouts=layouts)
        case RestorePlanned():
            return _restarted(history, event)
        case CheckpointsSuspected() | SuspicionEnded() | TrustDecided():
            return replace(history, beliefs=_told(history, event))
        case CheckpointPinned() | CheckpointUnpinned():
            which = (event.step, event.generation)
            others = tuple(p for p in history.pins if (p.step, p.generation) != which)
            more = (event,) if isinstance(event, CheckpointPinned) else ()
            return replace(history, pins=others + more)
        case RemovalsDecided():
            removed = (*history.removed, *event.removals)
            gone = {(one.step, one.generation) for one in event.removals}
            checks = tuple(c for c in history.checks if (c.step, c.generation) not in gone)
            return replace(history, removed=removed[-REMOVALS_MAX:], checks=checks)
        case CheckpointChecked():
            return _checked(history, event)
        case _:
            assert_never(event)


def damage_in_words(check: CheckpointChecked) -> str:
    """Say who found what; "" when nothing was bad."""
    if not check.bad_ranks:
        return ""
    named = ", ".join(str(rank) for rank in check.bad_ranks[:NAMED_MAX])
    left = len(check.bad_ranks) - NAMED_MAX
    more = f" and {left} more" if left > 0 else ""
    whose = f"object of rank {named}" if len(check.bad_ranks) == 1 else f"objects of ranks {named}"
    return f"{check.by} found the {whose}{more} bad" + (f" ({check.why})" if check.why else "")


def _checked(history: History, event: CheckpointChecked) -> History:
    which = (event.step, event.generation)
    others = tuple(c for c in history.checks if (c.step, c.generation) != which)
    prefix = prefix_of(event.job_id, event.step, event.generation)
    distrusted = history.distrusted
    if event.whole:
        distrusted = tuple(d for d in distrusted if not d.uri.startswith(prefix))
    return replace(history, checks=(*others, event)[-CHECKS_MAX:], distrusted=distrusted)


def _restarted(history: History, event: RestorePlanned) -> History:
    restart = Restart(generation=event.generation, step=event.step)
    others = [r for r in history.lineage.restarts if r.generation != event.generation]
    lineage = lineage_of([*others, restart])
    beliefs = history.beliefs
    words = tuple(w for w in beliefs.words if lineage.holds(generation=w.generation, step=w.step))
    return replace(
        history,
        newest_generation=max(history.newest_generation, event.generation),
        lineage=lineage,
        passed_over=event.passed_over,
        beliefs=replace(beliefs, suspicions=relevant(beliefs, lineage), words=words),
    )


def _told(history: History, event: CheckpointsSuspected | SuspicionEnded | TrustDecided) -> Beliefs:
    beliefs = history.beliefs
    match event:
        case CheckpointsSuspected():
            others = [s for s in beliefs.suspicions if s.suspicion_id != event.suspicion_id]
            suspicion = Suspicion(
                suspicion_id=event.suspicion_id,
                kind=event.kind,
                generation=event.generation,
                from_step=event.from_step,
                to_step=event.to_step,
                why=event.why,
                by=event.by,
                at_ms=event.at_ms,
                number=beliefs.raised,
            )
            suspicions = (*others, suspicion)
            return replace(beliefs, suspicions=suspicions, raised=beliefs.raised + 1)
        case SuspicionEnded():
            ended = tuple(
                replace(one, ending=event.outcome)
                if one.suspicion_id == event.suspicion_id
                else one
                for one in beliefs.suspicions
            )
            real = tuple(one for one in ended if one.ending != Ending.FALSE_ALARM)
            left = replace(beliefs, suspicions=real)
            return replace(left, suspicions=relevant(left, history.lineage))
        case TrustDecided():
            which = (event.step, event.generation)
            words = tuple(w for w in beliefs.words if (w.step, w.generation) != which)
            word = Word(
                step=event.step,
                generation=event.generation,
                trust=Trust(event.trust),
                why=event.why,
                by=event.by,
                at_ms=event.at_ms,
                heard=beliefs.raised,
            )
            return replace(beliefs, words=(*words, word))
        case _:
            assert_never(event)
