"""How ranks load their state: each by the first source that works, as ``everstep.agent.restore``.

After a change of layout a rank is put together from several old ones' snapshots
(``everstep.agent.resharding``); those of another host are brought beside its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from everstep.agent.codec import decode_sources
from everstep.agent.runs import RankRestore, Source, SourceKind
from everstep.core.errors import Unavailable
from everstep.core.placement import Layout
from everstep.core.resharding import sources_needed
from everstep.sim.memory import Copy
from everstep.sim.training import FRESH
from everstep.wire.codec import from_wire
from everstep.wire.v1 import agents_pb2 as wire

if TYPE_CHECKING:
    from everstep.sim.host import Host, HostRun

# As everstep.agent.restore.
PATIENCE_S: Final = {
    SourceKind.OWN_MEMORY: 2.0,
    SourceKind.PEER_MEMORY: 2.0,
    SourceKind.OBJECT_STORE: 60.0,
}


def begin(host: Host, run: HostRun, command: wire.StartRanks) -> None:
    """Let a generation's ranks of a host load what they go on from."""
    step, sources = command.restore_step, command.sources
    for rank in run.ranks if step == FRESH else ():
        host.world.physics(_fresh(run, rank))
    if step == FRESH:
        return
    there = {one.rank: one for one in decode_sources(sources, host.host_id)}
    if not sources.HasField("old_layout"):
        for rank, restore in there.items():
            host.world.physics(_restore(host, run, rank, (restore,), step))
        return
    old, new = (from_wire(one, Layout) for one in (sources.old_layout, command.layout))
    for rank in run.ranks:
        needed = sources_needed(old, new, rank, lost=frozenset(sources.lost))
        restores = tuple(there.get(one, RankRestore(rank=one)) for one in needed)
        host.world.physics(_restore(host, run, rank, restores, step, old=True))


async def _fresh(run: HostRun, rank: int) -> None:
    await asyncio.sleep(run.training.pace.load_s)
    if rank in run.alive:
        run.training.restored(rank, "fresh")
        await _time_out(run, rank)


async def _restore(
    host: Host,
    run: HostRun,
    rank: int,
    restores: Sequence[RankRestore],
    step: int,
    *,
    old: bool = False,
) -> None:
    """Load one snapshot, or all those that a rank is put together from."""
    training = run.training
    refused: list[wire.RefusedSource] = []
    copies: list[Copy] = []
    for restore in restores:
        copy = await _bring(host, run, rank, restore, step, refused, old=old)
        if rank not in run.alive:
            return
        if copy is None:
            _tell(host, run, rank, wire.START_FAILED, step, refused)
            run.end(rank, wire.RESTORE_FAILED, error=f"no source of step {step} could be loaded")
            training.break_up(f"rank {rank} could not be restored")
            return
        copies.append(copy)
    _loaded(host, run, rank, copies, refused, old=old)
    await _time_out(run, rank)


async def _bring(
    host: Host,
    run: HostRun,
    rank: int,
    restore: RankRestore,
    step: int,
    refused: list[wire.RefusedSource],
    *,
    old: bool,
) -> Copy | None:
    """Return the first sound copy; None when there is none, or the rank has ended."""
    training, loop = run.training, asyncio.get_running_loop()
    began_s, left = loop.time(), list(restore.sources)
    while left:
        away = []
        for source in left:
            await asyncio.sleep(training.pace.load_s * (0.5 + host.random.random()))
            if rank not in run.alive:
                return None
            try:
                copy = await host.world.read(host, training.job_id, restore.rank, step, source)
            except Unavailable:
                away.append(source)
                continue
            if copy is not None and copy.sound:
                return copy
            whose = restore.rank if old else None
            refused.append(_refused(host, step, source, absent=copy is None, rank=whose))
        waited_s = loop.time() - began_s
        left = [one for one in away if waited_s < PATIENCE_S[one.kind]]
        await asyncio.sleep(1.0 if left else 0.0)
    return None


def _refused(
    host: Host, step: int, source: Source, *, absent: bool, rank: int | None
) -> wire.RefusedSource:
    where = source.host_id or source.uri
    return wire.RefusedSource(
        step=step,
        kind=source.kind,
        host_id=source.host_id or host.host_id,
        uri=source.uri,
        detail=f"{where}: {'absent' if absent else 'bad checksum'}",
        rank=rank,
    )


def _loaded(
    host: Host,
    run: HostRun,
    rank: int,
    copies: Sequence[Copy],
    refused: list[wire.RefusedSource],
    *,
    old: bool,
) -> None:
    training, step = run.training, copies[0].step
    if old:
        for copy in copies:
            host.memory.bring_old(training.job_id, copy)
    else:
        own = host.memory.find(training.job_id, rank, step, own=True)
        if own is None or not own.sound:
            generation = training.generation
            host.memory.write(training.job_id, copies[0], own=True, generation=generation)
        run.held_step = run.shown_step = step
        run.replicate.set()
    run.last_step = step
    if refused:
        _tell(host, run, rank, wire.RANK_READY, step, refused)
    there = host.world.bits.wrong
    wrong = any(copy.rank in there.get(copy.state, ()) for copy in copies)
    training.restored(rank, " and ".join(sorted({copy.state for copy in copies})), wrong=wrong)


def _tell(
    host: Host,
    run: HostRun,
    rank: int,
    kind: wire.ReportKind,
    step: int,
    refused: list[wire.RefusedSource],
) -> None:
    """Report how a rank's restore went, and which of its sources could not be used."""
    failed = kind == wire.START_FAILED
    host.exits.append(
        wire.RankReport(
            host_id=host.host_id,
            job_id=run.training.job_id,
            generation=run.training.generation,
            rank=rank,
            kind=kind,
            exit_class=wire.RESTORE_FAILED if failed else wire.EXIT_CLASS_UNSPECIFIED,
            error=f"no source of step {step} could be loaded" if failed else "",
            restored_step=step,
            refused_sources=refused,
            at_ms=host.now_ms(),
        )
    )
    host.tell_agent("exits", run)


async def _time_out(run: HostRun, rank: int) -> None:
    """A rendezvous that does not come about fails after the collective timeout."""
    training = run.training
    await asyncio.sleep(training.spec.recovery.collective_timeout_s)
    if rank in run.alive and len(training.ready) < training.world_size:
        training.break_up("the rendezvous timed out")
