"""What there is of one step, told apart by the layout of the ranks that wrote it.

A generation's ranks have one layout, so the generation that wrote a snapshot says which of a job's
layouts it was taken under; hosts and objects need not say it. What was written under another layout
than the present one is put together anew (``core.resharding``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep.checkpoint_registry.commands import (
    CompleteFacts,
    HeldSnapshots,
    HostHoldings,
    PlanRestore,
)
from everstep.checkpoint_registry.events import Holder
from everstep.checkpoint_registry.state import History
from everstep.core.placement import Layout
from everstep.core.resharding import why_unreachable

# Snapshots of one step that may be restored, and the host whose memory holds them.
Held = tuple[HostHoldings, HeldSnapshots]
_Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is there of one step, written under one layout.

    ``old_layout`` is that layout, if it is not the one that is restored to.
    """

    memory: Sequence[Held]
    checkpoint: CompleteFacts | None
    old_layout: Layout | None = None


def by_layout(there: Candidate, request: PlanRestore, history: History) -> Iterator[Candidate]:
    """Tell apart what ranks of different layouts wrote; that of the present one comes first."""
    known = {history.layout, *(layout for _, layout in history.layouts)} - {None, request.layout}
    if request.layout is None or not known:
        yield there
        return
    stored = there.checkpoint
    generations = {held.generation for _, held in there.memory}
    layouts = {one: history.layout_of(one) or request.layout for one in generations}
    if stored is not None:
        layouts[stored.generation] = history.layout_of(stored.generation) or request.layout
    newest_first = dict.fromkeys(layouts[one] for one in sorted(layouts, reverse=True))
    for layout in sorted(newest_first, key=request.layout.__ne__):
        mine = stored is not None and layouts[stored.generation] == layout
        yield Candidate(
            memory=[one for one in there.memory if layouts[one[1].generation] == layout],
            checkpoint=stored if mine else None,
            old_layout=layout if layout != request.layout else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The ranks that are in memory: whose own snapshots are, and of which there is any copy."""

    own: frozenset[int]
    every: frozenset[int]


def kept_in(memory: Sequence[Held]) -> Kept:
    """Return the ranks of which there are snapshots in memory."""
    own = frozenset[int]().union(*[held.ranks for _, held in memory if held.own])
    return Kept(own=own, every=own.union(*[held.ranks for _, held in memory if not held.own]))


def holders_of(memory: Sequence[Held]) -> tuple[Holder, ...]:
    """Bring together what each host holds of each generation; newer writers before older."""
    told: dict[int, dict[str, tuple[HostHoldings, _Ranks, _Ranks]]] = {}
    for host, held in memory:
        hosts = told.get(held.generation)
        if hosts is None:
            hosts = told[held.generation] = {}
        first, own, replicas = hosts.get(host.host_id) or (host, (), ())
        if held.own:
            own = tuple(sorted({*own, *held.ranks})) if own else held.ranks
        else:
            replicas = tuple(sorted({*replicas, *held.ranks})) if replicas else held.ranks
        hosts[host.host_id] = (first, own, replicas)
    return tuple(
        [
            Holder(
                host_id=host_id,
                address=host.address,
                peer_port=host.peer_port,
                generation=generation,
                own=own,
                replicas=replicas,
            )
            for generation in sorted(told, reverse=True)
            for host_id, (host, own, replicas) in told[generation].items()
        ]
    )


def missing_in(candidate: Candidate, kept: Kept, request: PlanRestore) -> list[int]:
    """Return the ranks, of the candidate's layout, that have no source."""
    old = candidate.old_layout
    world_size = request.world_size if old is None else old.world_size
    shards = candidate.checkpoint.shards if candidate.checkpoint else ()
    if len(shards) == world_size:
        return []
    there = kept.every.union([shard.rank for shard in shards]) if shards else kept.every
    return [] if len(there) == world_size else [r for r in range(world_size) if r not in there]


def why_not_across(candidate: Candidate, request: PlanRestore, missing: Sequence[int]) -> str:
    """Say why the candidate will not do for all ranks to be restored; "" if it will."""
    if candidate.old_layout is None or request.layout is None:
        return f"{len(missing)} ranks have no source" if missing else ""
    return why_unreachable(candidate.old_layout, request.layout, missing)


def world_size_of(request: PlanRestore, history: History, generation: int) -> int:
    """Return how many ranks a generation had, as far as anybody has said that it may differ."""
    layout = history.layout_of(generation) if request.layout is not None else None
    return request.world_size if layout is None else layout.world_size
