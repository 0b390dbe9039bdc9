"""Chooses the step that a generation goes on from, and every rank's sources for it.

The newest step at which every rank has a source: own memory before a peer's memory before the
object store, mixed freely, because snapshots of one history at one step are one state
(``lineage``). Memory counts only as told by fenced hosts, object storage only as complete
checkpoints, and nothing counts that is suspect (``trust``).

Rejected: the step that loads fastest. A step lost costs a whole step of the whole fleet; the load
of any source costs seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from everstep.checkpoint_registry.candidates import (
    Candidate,
    Held,
    Kept,
    by_layout,
    holders_of,
    kept_in,
    missing_in,
    why_not_across,
    world_size_of,
)
from everstep.checkpoint_registry.commands import (
    CompleteFacts,
    HeldSnapshots,
    HostHoldings,
    Known,
    PlanRestore,
)
from everstep.checkpoint_registry.events import RestoreLaidOut, SourceDistrusted
from everstep.checkpoint_registry.lineage import NO_CEILING, Lineage
from everstep.checkpoint_registry.retention import Reason
from everstep.checkpoint_registry.state import History, damage_in_words
from everstep.checkpoint_registry.trust import Trust
from everstep.core.decision import Rejected

FRESH: Final = -1
# A person reads them: two memory slots a host and a few checkpoints give a handful; more would be
# a sign of trouble that the first ones already show.
PASSED_OVER_MAX: Final = 16
ONLY_SUSPECT: Final = "only_suspect"  # a person has to speak first; the job waits for that
NAMED_MAX: Final = 8  # ranks or steps in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The laid out plan, and in sentences why newer steps were not taken.

    ``counts`` are the plan's ``preferred_counts``.
    """

    laid_out: RestoreLaidOut
    counts: tuple[int, int, int]
    passed_over: tuple[str, ...]


_generation: Final = attrgetter("generation")


def plan_restore(request: PlanRestore, history: History) -> Plan | Rejected:
    """Choose the newest step that every rank can load.

    Args:
        request: what fenced hosts hold, the job's checkpoints, and from where at the latest.
        history: the job's restarts before this one, the copies that could not be used, and what is
            thought of its states.

    Returns:
        The plan (step -1: nothing was ever completed, start fresh), or ``no_such_step`` when
        nothing of ``from_step`` exists that may be restored, or ``no_source`` when no step can be
        loaded whole although there was a checkpoint once; ``only_suspect`` if one could be, were it
        not suspect.
    """
    memory, stale = _memory(request, history)
    checkpoints, remarks, spoilt = _checkpoints(request, history)
    said = _partial(request, history) | stale | remarks
    steps = sorted({*memory, *checkpoints}, reverse=True)
    if request.from_step != FRESH and request.from_step not in steps:
        return _no_such_step(request, history, steps, said.get(request.from_step, ""))
    latest = NO_CEILING if request.from_step == FRESH else request.from_step
    if request.before_step:
        why = f"what is asked for is from before step {request.before_step}"
        said = {step: why for step in steps if step >= request.before_step} | said
        latest = min(latest, request.before_step - 1)
        passed_over = said
    else:
        passed_over = {at: why for at, why in said.items() if at <= latest}
    for step in (step for step in steps if step <= latest):
        there = Candidate(memory=memory.get(step, ()), checkpoint=checkpoints.get(step))
        for candidate in by_layout(there, request, history):
            kept = kept_in(candidate, request)
            missing = missing_in(candidate, kept, request)
            across = why_not_across(candidate, request, missing)
            if not across:
                return _plan(request, step, candidate, kept, passed_over, lost=missing)
            why = f" ({said[step]})" if step in said else ""
            short = f"{_ranks(missing)} no source" if missing else across
            passed_over[step] = spoilt.get(step) or f"{short}{why}"
    if _was_kept(request, history):
        advice = _advice(request, history, [facts.step for facts in request.checkpoints])
        return Rejected(
            ONLY_SUSPECT if advice else "no_source",
            f"job {request.job_id}: no step can be loaded by all {request.world_size} ranks: "
            + (_in_one(passed_over) or "nothing is stored")
            + advice,
        )
    nothing = Candidate(memory=(), checkpoint=None)
    return _plan(request, FRESH, nothing, kept_in(nothing, request), passed_over)


def _was_kept(request: PlanRestore, history: History) -> bool:
    """Whether there should be a state to go on from: then a fresh start would throw work away."""
    if not request.before_step:
        return bool(request.checkpoints) or request.from_step != FRESH
    # What was superseded was never complete: no work was safe in it.
    gone = {one.step for one in history.removed if one.why != Reason.SUPERSEDED}
    kept = {facts.step for facts in request.checkpoints} | gone
    return min(kept, default=request.before_step) < request.before_step


def preferred_counts(plan: RestoreLaidOut) -> tuple[int, int, int]:
    """Count the ranks by preferred source: own memory, peer memory, object store."""
    own = frozenset[int]().union(*[holder.own for holder in plan.holders])
    every = own.union(*[holder.replicas for holder in plan.holders])
    return _counts(plan, Kept(own=own, every=every))


def _counts(plan: RestoreLaidOut, kept: Kept) -> tuple[int, int, int]:
    whole = plan.world_size - len(plan.lost)
    stored = whole - len(kept.every) if plan.step != FRESH else 0
    return len(kept.own), len(kept.every) - len(kept.own), stored


def _memory(request: PlanRestore, history: History) -> tuple[dict[int, list[Held]], dict[int, str]]:
    """Sort the held snapshots that count by step; say which steps are abandoned, suspect or bad."""
    by_step: dict[int, list[Held]] = {}
    stale: dict[int, str] = {}
    # All hosts tell of the same few steps: what becomes of one is looked up once.
    fates: dict[tuple[int, int, bool], _Fate] = {}
    bad = _bad_copies(history.distrusted)
    for host in sorted(request.holdings, key=attrgetter("host_id")):
        spoilt = bad.get(host.host_id) if bad else None
        for held in host.held:
            which = (held.generation, held.step, held.own)
            try:
                hosts, theirs, world_size, why_not = fates[which]
            except KeyError:
                _add_fates(request, history, held, fates, by_step)
                hosts, theirs, world_size, why_not = fates[which]
            ranks = held.ranks
            if why_not and ranks:
                stale[held.step] = why_not
                continue
            if spoilt or not ranks or ranks[0] < 0 or ranks[-1] >= world_size:
                ranks = _sound(host, held, spoilt or {}, world_size, stale)
            if ranks:
                hosts.append(host)
                theirs.append(ranks)
    there = {step: [one for one in held if _is_there(one)] for step, held in by_step.items()}
    return {step: held for step, held in there.items() if held}, stale


# What becomes of the copies of a generation's step, ranks' own or others': in which lists hosts and
# their ranks are gathered, how many ranks the generation had, and why they are not restored or "".
_Fate = tuple[list[HostHoldings], list[tuple[int, ...]], int, str]


def _add_fates(
    request: PlanRestore,
    history: History,
    held: HeldSnapshots,
    fates: dict[tuple[int, int, bool], _Fate],
    by_step: dict[int, list[Held]],
) -> None:
    generation, step = held.generation, held.step
    why_not = _why_not(history, generation, step)
    there = Held(generation=generation)
    # What this generation or a later one wrote is never restored by it: gathered nowhere.
    if not why_not and generation < request.generation:
        by_step.setdefault(step, []).append(there)
    world_size = world_size_of(request, history, generation)
    for own, copies in ((True, there.own), (False, there.replicas)):
        fates[generation, step, own] = (copies.hosts, copies.ranks, world_size, why_not)


def _sound(
    host: HostHoldings,
    held: HeldSnapshots,
    spoilt: Mapping[int, Mapping[int, int]],
    world_size: int,
    stale: dict[int, str],
) -> tuple[int, ...]:
    """Leave out bad copies, of which ``stale`` tells, and ranks that the generation had not."""
    sound = _without(held, spoilt.get(held.step, {}))
    if len(sound) < len(held.ranks):
        rank = next(rank for rank in held.ranks if rank not in sound)
        stale.setdefault(held.step, f"the copy of rank {rank} on {host.host_id} is bad")
    return tuple(rank for rank in sound if 0 <= rank < world_size)


def _is_there(held: Held) -> bool:
    return bool(held.own.hosts or held.replicas.hosts)


def _bad_copies(distrusted: Sequence[SourceDistrusted]) -> dict[str, dict[int, dict[int, int]]]:
    """Return by host and step the ranks of bad copies, and which generation refused each."""
    bad: dict[str, dict[int, dict[int, int]]] = {}
    for source in distrusted:
        if not source.uri:
            steps = bad.setdefault(source.host_id, {})
            steps.setdefault(source.step, {})[source.rank] = source.generation
    return bad


def _without(held: HeldSnapshots, spoilt: Mapping[int, int]) -> tuple[int, ...]:
    """Leave bad copies out; one that was written after the refusal is another one."""
    return tuple(rank for rank in held.ranks if held.generation >= spoilt.get(rank, 0))


def _checkpoints(
    request: PlanRestore, history: History
) -> tuple[dict[int, CompleteFacts], dict[int, str], dict[int, str]]:
    """Return the usable checkpoints by step, the newest generation's of each, and remarks.

    A checkpoint with a bad object serves its other ranks, beside memory; the last mapping says
    what is bad of it, in case that is not enough.
    """
    usable: dict[int, CompleteFacts] = {}
    remarks: dict[int, str] = {}
    spoilt: dict[int, str] = {}
    bad = {d.uri for d in history.distrusted if d.uri}
    removed = history.removed_ids
    for facts in sorted(request.checkpoints, key=lambda c: (c.step, c.generation)):
        step = facts.step
        why_not = _why_not(history, facts.generation, step)
        if not why_not and (step, facts.generation) in removed:
            why_not = "its checkpoint is being deleted"
        world_size = world_size_of(request, history, facts.generation)
        if not why_not and len(facts.shards) != world_size:
            why_not = (
                f"its checkpoint is of {len(facts.shards)} ranks, and {world_size} are to "
                "be restored"
            )
        if why_not:
            remarks[step] = why_not
            continue
        usable[step] = facts
        damaged = history.check_of(generation=facts.generation, step=step)
        bad_ranks = frozenset(damaged.bad_ranks if damaged is not None else ())
        found = [shard.uri for shard in facts.shards if shard.uri in bad] if bad else []
        if found or bad_ranks:
            good = (s for s in facts.shards if s.uri not in bad and s.rank not in bad_ranks)
            usable[step] = replace(facts, shards=tuple(good))
            spoilt[step] = (
                f"object {found[0]} could not be used before"
                if damaged is None or not bad_ranks
                else f"its checkpoint is damaged: {damage_in_words(damaged)}"
            )
    return usable, remarks, spoilt


def _partial(request: PlanRestore, history: History) -> dict[int, str]:
    """Say of which steps there would be a checkpoint if all of it were uploaded."""
    return {
        known.step: _how_far(known)
        for known in sorted(request.unfinished, key=lambda k: (k.step, k.generation))
        if not _why_not(history, known.generation, known.step)
    }


def _how_far(known: Known) -> str:
    if known.stored == known.world_size:
        return "its checkpoint is still being read back"
    return f"of its checkpoint only {known.stored} of {known.world_size} objects are stored"


def _why_not(history: History, generation: int, step: int) -> str:
    """Say why what a generation made or holds of a step is not restored; "" if it may be."""
    if step > history.lineage.ceiling(generation):
        return _abandoned(history.lineage, generation, step)
    judged = history.judge(generation=generation, step=step)
    return f"suspect ({judged.why})" if judged.trust is Trust.SUSPECT else ""


def _plan(
    request: PlanRestore,
    step: int,
    candidate: Candidate,
    kept: Kept,
    passed_over: Mapping[int, str],
    *,
    lost: Sequence[int] = (),
) -> Plan:
    stored, old = candidate.checkpoint, candidate.old_layout
    laid_out = RestoreLaidOut(
        job_id=request.job_id,
        generation=request.generation,
        step=step,
        world_size=old.world_size if old is not None else request.world_size,
        holders=holders_of(candidate.memory),
        shards=stored.shards if stored else (),
        shards_generation=stored.generation if stored else 0,
        at_ms=request.at_ms,
        layout=request.layout,
        old_layout=old,
        lost=tuple(lost),
    )
    return Plan(
        laid_out=laid_out,
        counts=_counts(laid_out, kept),
        passed_over=_newest_first(passed_over, step),
    )


def _newest_first(passed_over: Mapping[int, str], step: int) -> tuple[str, ...]:
    newer = sorted((at for at in passed_over if at > step), reverse=True)
    return tuple(f"step {at}: {passed_over[at]}" for at in newer[:PASSED_OVER_MAX])


def _in_one(passed_over: Mapping[int, str]) -> str:
    """Say in one sentence why each step was not taken, each reason once: they may be long."""
    steps: dict[str, list[int]] = {}
    for step in sorted(passed_over, reverse=True)[:PASSED_OVER_MAX]:
        steps.setdefault(passed_over[step], []).append(step)
    return "; ".join(
        f"step{'s' if len(at) > 1 else ''} {', '.join(map(str, at))}: {why}"
        for why, at in steps.items()
    )


def _no_such_step(
    request: PlanRestore, history: History, steps: Sequence[int], remark: str
) -> Rejected:
    there = ", ".join(str(step) for step in steps[:NAMED_MAX]) or "none"
    more = f" and {len(steps) - NAMED_MAX} older ones" if len(steps) > NAMED_MAX else ""
    step = request.from_step
    return Rejected(
        "no_such_step",
        f"job {request.job_id} has nothing of step {step} to restore; steps that exist: "
        f"{there}{more}"
        + (f" (step {step}: {remark})" if remark else "")
        + _advice(request, history, [step]),
    )


def _advice(request: PlanRestore, history: History, steps: Sequence[int]) -> str:
    """Say what a person can do about suspect checkpoints, if these steps have any.

    What is to be left behind (``before_step``) is gone on from only if a person asks for it.
    """
    judged = {
        facts.step: history.judge(generation=facts.generation, step=facts.step).trust
        for facts in sorted(request.checkpoints, key=_generation)  # of one step the newest counts
        if facts.step in steps
        and history.lineage.holds(generation=facts.generation, step=facts.step)
    }
    suspect = [step for step, trust in judged.items() if trust is Trust.SUSPECT]
    if not suspect:
        return ""
    job_id, since = request.job_id, request.before_step or NO_CEILING
    sound = [step for step in judged if step >= since and step not in suspect]
    asked = f"`everstep jobs restart {job_id} --from-step {max(sound or suspect)}`"
    if sound:
        return f"; somebody called step {max(sound)} sound: {asked} goes on from it"
    return (
        "; a suspect step is restored once somebody says that it is clean: `everstep checkpoints "
        f"trust {job_id} {max(suspect)} clean`"
    ) + (f", and then asks for it: {asked}" if max(suspect) >= since else "")


def _abandoned(lineage: Lineage, generation: int, step: int) -> str:
    restart = lineage.abandoned_by(generation=generation, step=step)
    assert restart is not None, f"generation {generation} at step {step} was not abandoned"
    return (
        f"what generation {generation} did there was abandoned when generation "
        f"{restart.generation} went on from step {restart.step}"
    )


def _ranks(missing: Sequence[int]) -> str:
    named = ", ".join(str(rank) for rank in missing[:NAMED_MAX])
    if len(missing) == 1:
        return f"rank {named} has"
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return f"ranks {named}{more} have"
