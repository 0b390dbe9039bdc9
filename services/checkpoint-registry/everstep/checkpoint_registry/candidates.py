"""What there is of one step, told apart by the layout of the ranks that wrote it.

A generation's ranks have one layout, so the generation that wrote a snapshot says which of a job's
layouts it was taken under; hosts and objects need not say it. What was written under another layout
than the present one is put together anew (``core.resharding``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final

from everstep.checkpoint_registry.commands import CompleteFacts, HostHoldings, PlanRestore
from everstep.checkpoint_registry.events import Holder
from everstep.checkpoint_registry.state import History
from everstep.core.placement import Layout
from everstep.core.resharding import why_unreachable

_Ranks = tuple[int, ...]

_generation: Final = attrgetter("generation")


@dataclass(slots=True, kw_only=True)
class Copies:
    """Whose memory holds snapshots, by id, and beside each host of which ranks."""

    hosts: list[HostHoldings] = field(default_factory=list)
    ranks: list[_Ranks] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Snapshots in memory that may be restored, of one step that one generation wrote."""

    generation: int
    own: Copies = field(default_factory=Copies)
    replicas: Copies = field(default_factory=Copies)


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
    generations = {held.generation for held in there.memory}
    layouts = {one: history.layout_of(one) or request.layout for one in generations}
    if stored is not None:
        layouts[stored.generation] = history.layout_of(stored.generation) or request.layout
    newest_first = dict.fromkeys(layouts[one] for one in sorted(layouts, reverse=True))
    for layout in sorted(newest_first, key=request.layout.__ne__):
        mine = stored is not None and layouts[stored.generation] == layout
        yield Candidate(
            memory=[one for one in there.memory if layouts[one.generation] == layout],
            checkpoint=stored if mine else None,
            old_layout=layout if layout != request.layout else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The ranks that are in memory: whose own snapshots are, and of which there is any copy."""

    own: frozenset[int]
    every: frozenset[int]


def kept_in(candidate: Candidate, request: PlanRestore) -> Kept:
    """Return the ranks of which there are snapshots in memory."""
    memory = candidate.memory
    own = frozenset[int]().union(*chain.from_iterable([held.own.ranks for held in memory]))
    if len(own) == _ranks_in(candidate, request):
        return Kept(own=own, every=own)
    every = own.union(*chain.from_iterable([held.replicas.ranks for held in memory]))
    return Kept(own=own, every=every)


def holders_of(memory: Sequence[Held]) -> tuple[Holder, ...]:
    """Bring together what each host holds of each generation; newer writers before older."""
    newest_first = sorted(memory, key=_generation, reverse=True)
    return tuple([holder for held in newest_first for holder in _holders(held)])


def _holders(held: Held) -> list[Holder]:
    generation, hosts = held.generation, held.own.hosts
    told: Iterable[tuple[HostHoldings, _Ranks, _Ranks]]
    # Nearly always the same hosts have both, and each has told once.
    if hosts == held.replicas.hosts and len({host.host_id for host in hosts}) == len(hosts):
        told = zip(hosts, held.own.ranks, held.replicas.ranks, strict=True)
    else:
        told = _brought_together(held)
    return [
        Holder(
            host_id=host.host_id,
            address=host.address,
            peer_port=host.peer_port,
            generation=generation,
            own=own,
            replicas=replicas,
        )
        for host, own, replicas in told
    ]


def _brought_together(held: Held) -> list[tuple[HostHoldings, _Ranks, _Ranks]]:
    """Return all that a host has told in one; by host id."""
    told: dict[str, tuple[HostHoldings, _Ranks, _Ranks]] = {}
    for host, ranks in zip(held.own.hosts, held.own.ranks, strict=True):
        first, own, _ = told.get(host.host_id, (host, (), ()))
        told[host.host_id] = (first, tuple(sorted({*own, *ranks})) if own else ranks, ())
    for host, ranks in zip(held.replicas.hosts, held.replicas.ranks, strict=True):
        first, own, kept = told.get(host.host_id, (host, (), ()))
        told[host.host_id] = (first, own, tuple(sorted({*kept, *ranks})) if kept else ranks)
    return [told[host_id] for host_id in sorted(told)]


def missing_in(candidate: Candidate, kept: Kept, request: PlanRestore) -> list[int]:
    """Return the ranks, of the candidate's layout, that have no source."""
    world_size = _ranks_in(candidate, request)
    shards = candidate.checkpoint.shards if candidate.checkpoint else ()
    if len(shards) == world_size:
        return []
    there = kept.every.union([shard.rank for shard in shards]) if shards else kept.every
    return [] if len(there) == world_size else [r for r in range(world_size) if r not in there]


def _ranks_in(candidate: Candidate, request: PlanRestore) -> int:
    old = candidate.old_layout
    return request.world_size if old is None else old.world_size


def why_not_across(candidate: Candidate, request: PlanRestore, missing: Sequence[int]) -> str:
    """Say why the candidate will not do for all ranks to be restored; "" if it will."""
    if candidate.old_layout is None or request.layout is None:
        return f"{len(missing)} ranks have no source" if missing else ""
    return why_unreachable(candidate.old_layout, request.layout, missing)


def world_size_of(request: PlanRestore, history: History, generation: int) -> int:
    """Return how many ranks a generation had, as far as anybody has said that it may differ."""
    layout = history.layout_of(generation) if request.layout is not None else None
    return request.world_size if layout is None else layout.world_size
