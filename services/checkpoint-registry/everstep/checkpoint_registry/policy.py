"""Chooses the step that a generation goes on from, and every rank's sources for it.

The newest step at which every rank has a source: own memory before a peer's memory before the
object store, mixed freely, because snapshots of one history at one step are one state
(``lineage``). Memory counts only as told by fenced hosts, object storage only as complete
checkpoints.

Rejected: the step that loads fastest. A step lost costs a whole step of the whole fleet; the load
of any source costs seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from everstep.checkpoint_registry.commands import (
    CompleteFacts,
    HeldSnapshots,
    HostHoldings,
    PlanRestore,
)
from everstep.checkpoint_registry.events import Holder, RestoreLaidOut, SourceDistrusted
from everstep.checkpoint_registry.lineage import NO_CEILING, Lineage
from everstep.core.decision import Rejected
from everstep.core.record import changed

FRESH: Final = -1
# A person reads them: two memory slots a host and a few checkpoints give a handful; more would be
# a sign of trouble that the first ones already show.
PASSED_OVER_MAX: Final = 16
NAMED_MAX: Final = 8  # ranks or steps in one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The laid out plan, and in sentences why newer steps were not taken."""

    laid_out: RestoreLaidOut
    passed_over: tuple[str, ...]


# Snapshots of one step that may be restored, and the host whose memory holds them.
_Held = tuple[HostHoldings, HeldSnapshots]
_generation: Final = attrgetter("generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """What is there of one step."""

    memory: Sequence[_Held]
    checkpoint: CompleteFacts | None


def plan_restore(
    request: PlanRestore, lineage: Lineage, distrusted: Sequence[SourceDistrusted] = ()
) -> Plan | Rejected:
    """Choose the newest step that every rank can load.

    Args:
        request: what fenced hosts hold, the complete checkpoints, and from where at the latest.
        lineage: the job's restarts before this one.
        distrusted: copies that could not be used before.

    Returns:
        The plan (step -1: nothing was ever completed, start fresh), or ``no_such_step`` when
        nothing of ``from_step`` exists, or ``no_source`` when no step can be loaded whole although
        there was a checkpoint once.
    """
    memory, stale = _memory(request, lineage, distrusted)
    checkpoints, remarks, spoilt = _checkpoints(request, lineage, distrusted)
    steps = sorted({*memory, *checkpoints}, reverse=True)
    if request.from_step != FRESH and request.from_step not in steps:
        return _no_such_step(request, steps, stale | remarks)
    latest = NO_CEILING if request.from_step == FRESH else request.from_step
    passed_over = {at: why for at, why in (stale | remarks).items() if at <= latest}
    for step in (step for step in steps if step <= latest):
        candidate = _Candidate(memory=memory.get(step, ()), checkpoint=checkpoints.get(step))
        missing = _missing(candidate, request.world_size)
        if not missing:
            return _plan(request, step, candidate, passed_over)
        passed_over[step] = spoilt.get(step) or f"step {step}: {_ranks(missing)} no source"
    if request.checkpoints or request.from_step != FRESH:
        return Rejected(
            "no_source",
            f"job {request.job_id}: no step can be loaded by all {request.world_size} ranks: "
            + ("; ".join(_newest_first(passed_over, FRESH)) or "nothing is stored"),
        )
    return _plan(request, FRESH, _Candidate(memory=(), checkpoint=None), passed_over)


def preferred_counts(plan: RestoreLaidOut) -> tuple[int, int, int]:
    """Count the ranks by preferred source: own memory, peer memory, object store."""
    own = set().union(*(holder.own for holder in plan.holders))
    peer = set().union(*(holder.replicas for holder in plan.holders)) - own
    stored = plan.world_size - len(own) - len(peer) if plan.step != FRESH else 0
    return len(own), len(peer), stored


def _memory(
    request: PlanRestore, lineage: Lineage, distrusted: Sequence[SourceDistrusted]
) -> tuple[dict[int, list[_Held]], dict[int, str]]:
    """Sort the held snapshots of this history by step; say which steps are abandoned or bad."""
    by_step: dict[int, list[_Held]] = {}
    stale: dict[int, str] = {}
    # All hosts tell of the same few steps: what becomes of one is looked up once.
    fates: dict[tuple[int, int], list[_Held] | str] = {}
    world_size = request.world_size
    bad = _bad_copies(distrusted)
    for host in sorted(request.holdings, key=attrgetter("host_id")):
        spoilt = bad.get(host.host_id)
        for held in host.held:
            if not held.ranks:
                continue
            written = (held.generation, held.step)
            if written not in fates:
                fates[written] = _fate(request, lineage, written, by_step)
            copies = fates[written]
            if isinstance(copies, str):
                stale[held.step] = copies
                continue
            sound, step = held, held.step
            if spoilt:
                sound = _without(held, spoilt.get(step, {}))
                if len(sound.ranks) < len(held.ranks):
                    rank = next(rank for rank in held.ranks if rank not in sound.ranks)
                    why = f"step {step}: the copy of rank {rank} on {host.host_id} is bad"
                    stale.setdefault(step, why)
            if sound.ranks and (sound.ranks[0] < 0 or sound.ranks[-1] >= world_size):
                sound = changed(sound, ranks=_inside(sound.ranks, world_size))
            if sound.ranks:
                copies.append((host, sound))
    return {step: held for step, held in by_step.items() if held}, stale


def _fate(
    request: PlanRestore,
    lineage: Lineage,
    written: tuple[int, int],
    by_step: dict[int, list[_Held]],
) -> list[_Held] | str:
    """Return where copies of a generation's step are gathered, or how they were abandoned."""
    generation, step = written
    if step > lineage.ceiling(generation):
        return _abandoned(lineage, generation, step)
    # What this generation or a later one wrote is never restored by it: gathered nowhere.
    return by_step.setdefault(step, []) if generation < request.generation else []


def _bad_copies(distrusted: Sequence[SourceDistrusted]) -> dict[str, dict[int, dict[int, int]]]:
    """Return by host and step the ranks of bad copies, and which generation refused each."""
    bad: dict[str, dict[int, dict[int, int]]] = {}
    for source in distrusted:
        if not source.uri:
            steps = bad.setdefault(source.host_id, {})
            steps.setdefault(source.step, {})[source.rank] = source.generation
    return bad


def _without(held: HeldSnapshots, spoilt: Mapping[int, int]) -> HeldSnapshots:
    """Leave bad copies out; one that was written after the refusal is another one."""
    good = tuple(rank for rank in held.ranks if held.generation >= spoilt.get(rank, 0))
    return changed(held, ranks=good)


def _inside(ranks: tuple[int, ...], world_size: int) -> tuple[int, ...]:
    """Leave ranks out that this world does not have."""
    return tuple(rank for rank in ranks if 0 <= rank < world_size)


def _checkpoints(
    request: PlanRestore, lineage: Lineage, distrusted: Sequence[SourceDistrusted]
) -> tuple[dict[int, CompleteFacts], dict[int, str], dict[int, str]]:
    """Return the usable checkpoints by step, the newest generation's of each, and remarks.

    A checkpoint with a bad object serves its other ranks, beside memory; the last mapping says
    what is bad of it, in case that is not enough.
    """
    usable: dict[int, CompleteFacts] = {}
    remarks: dict[int, str] = {}
    spoilt: dict[int, str] = {}
    bad = {d.uri for d in distrusted if d.uri}
    for facts in sorted(request.checkpoints, key=lambda c: (c.step, c.generation)):
        if not lineage.holds(generation=facts.generation, step=facts.step):
            remarks[facts.step] = _abandoned(lineage, facts.generation, facts.step)
        elif len(facts.shards) != request.world_size:
            remarks[facts.step] = (
                f"step {facts.step}: its checkpoint is of {len(facts.shards)} ranks, and "
                f"{request.world_size} are to be restored"
            )
        else:
            usable[facts.step] = facts
            found = [shard.uri for shard in facts.shards if shard.uri in bad] if bad else []
            if found:
                good = tuple(shard for shard in facts.shards if shard.uri not in bad)
                usable[facts.step] = replace(facts, shards=good)
                spoilt[facts.step] = (
                    f"step {facts.step}: object {found[0]} could not be used before"
                )
    return usable, remarks, spoilt


def _missing(candidate: _Candidate, world_size: int) -> list[int]:
    shards = candidate.checkpoint.shards if candidate.checkpoint else ()
    if len(shards) == world_size:
        return []
    there = {shard.rank for shard in shards}
    there.update(*(held.ranks for _, held in candidate.memory))
    return [] if len(there) == world_size else [r for r in range(world_size) if r not in there]


def _plan(
    request: PlanRestore, step: int, candidate: _Candidate, passed_over: Mapping[int, str]
) -> Plan:
    stored = candidate.checkpoint
    laid_out = RestoreLaidOut(
        job_id=request.job_id,
        generation=request.generation,
        step=step,
        world_size=request.world_size,
        holders=_holders(candidate.memory),
        shards=stored.shards if stored else (),
        shards_generation=stored.generation if stored else 0,
        at_ms=request.at_ms,
    )
    return Plan(laid_out=laid_out, passed_over=_newest_first(passed_over, step))


def _holders(memory: Sequence[_Held]) -> tuple[Holder, ...]:
    """Bring together what each host holds of each generation; newer writers before older."""
    hosts: dict[tuple[str, int], HostHoldings] = {}
    own: dict[tuple[str, int], tuple[int, ...]] = {}
    replicas: dict[tuple[str, int], tuple[int, ...]] = {}
    for host, held in memory:
        key = (host.host_id, held.generation)
        hosts.setdefault(key, host)
        told = own if held.own else replicas
        told[key] = tuple(sorted({*told[key], *held.ranks})) if key in told else held.ranks
    holders = [
        Holder(
            host_id=host.host_id,
            address=host.address,
            peer_port=host.peer_port,
            generation=key[1],
            own=own.get(key, ()),
            replicas=replicas.get(key, ()),
        )
        for key, host in hosts.items()
    ]
    holders.sort(key=_generation, reverse=True)
    return tuple(holders)


def _newest_first(passed_over: Mapping[int, str], step: int) -> tuple[str, ...]:
    newer = sorted((at for at in passed_over if at > step), reverse=True)
    return tuple(passed_over[at] for at in newer[:PASSED_OVER_MAX])


def _no_such_step(
    request: PlanRestore, steps: Sequence[int], remarks: Mapping[int, str]
) -> Rejected:
    there = ", ".join(str(step) for step in steps[:NAMED_MAX]) or "none"
    more = f" and {len(steps) - NAMED_MAX} older ones" if len(steps) > NAMED_MAX else ""
    remark = remarks.get(request.from_step)
    return Rejected(
        "no_such_step",
        f"job {request.job_id} has nothing of step {request.from_step}; steps that exist: "
        f"{there}{more}" + (f" ({remark})" if remark else ""),
    )


def _abandoned(lineage: Lineage, generation: int, step: int) -> str:
    restart = lineage.abandoned_by(generation=generation, step=step)
    assert restart is not None, f"generation {generation} at step {step} was not abandoned"
    return (
        f"step {step}: what generation {generation} did there was abandoned when generation "
        f"{restart.generation} went on from step {restart.step}"
    )


def _ranks(missing: Sequence[int]) -> str:
    named = ", ".join(str(rank) for rank in missing[:NAMED_MAX])
    if len(missing) == 1:
        return f"rank {named} has"
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return f"ranks {named}{more} have"
