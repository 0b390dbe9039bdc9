"""Reports, holdings and plans in few words, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.spec import spec

from everstep.checkpoint_registry.codec import CHECKPOINTS, HISTORIES
from everstep.checkpoint_registry.commands import (
    CompleteCheckpoint,
    CompleteFacts,
    HeldSnapshots,
    HostHoldings,
    PlanRestore,
    ReportShards,
)
from everstep.checkpoint_registry.events import (
    CheckpointCompleted,
    RestoreLaidOut,
    RestorePlanned,
    Shard,
    ShardsStored,
)
from everstep.checkpoint_registry.object_keys import manifest_key, prefix_of
from everstep.core.record import changed

CHECKPOINT = spec(CHECKPOINTS)
HISTORY = spec(HISTORIES)


def shard(
    rank: int, *, step: int = 20, generation: int = 1, checksum: str = "aa", job_id: str = "job"
) -> Shard:
    """Return a shard of 100 bytes under the right key."""
    key = prefix_of(job_id, step, generation) + f"rank-{rank:05d}.shard"
    return Shard(rank=rank, uri=key, bytes=100, checksum=checksum)


def report(
    *ranks: int,
    step: int = 20,
    generation: int = 1,
    world_size: int = 2,
    newest_generation: int = 1,
    kept_to_step: int = -1,
    at_ms: int = 5,
    host_id: str = "h1",
    job_id: str = "job",
) -> ReportShards:
    """Return a host's report of these ranks."""
    return ReportShards(
        job_id=job_id,
        step=step,
        generation=generation,
        host_id=host_id,
        world_size=world_size,
        shards=tuple(shard(r, step=step, generation=generation, job_id=job_id) for r in ranks),
        data_state='{"position": 20}',
        at_ms=at_ms,
        newest_generation=newest_generation,
        kept_to_step=kept_to_step,
    )


def stored(*reports: ReportShards) -> ShardsStored:
    """Return the event of reports that came together and whose shards are all new."""
    first = reports[0]
    shards = [shard for report in reports for shard in report.shards]
    return ShardsStored(
        job_id=first.job_id,
        step=first.step,
        generation=first.generation,
        hosts=tuple(sorted({report.host_id for report in reports})),
        world_size=first.world_size,
        shards=tuple(sorted(shards, key=lambda shard: shard.rank)),
        data_state=first.data_state,
        at_ms=max(report.at_ms for report in reports),
    )


def complete(*shards: Shard, at_ms: int = 9) -> CompleteCheckpoint:
    """Return the command of the process manager after it read the shards back."""
    return CompleteCheckpoint(
        job_id="job",
        step=20,
        generation=1,
        shards=shards,
        manifest_uri=manifest_key("job", 20, 1),
        at_ms=at_ms,
    )


COMPLETED = CheckpointCompleted(
    job_id="job",
    step=20,
    generation=1,
    manifest_uri="jobs/job/step-00000020/gen-1/manifest.json",
    bytes=200,
    at_ms=9,
)


def facts(step: int, *, generation: int = 1, world_size: int = 2) -> CompleteFacts:
    """Return a complete checkpoint."""
    shards = (shard(r, step=step, generation=generation) for r in range(world_size))
    return CompleteFacts(step=step, generation=generation, shards=tuple(shards))


def own(rank: int, step: int, generation: int = 1) -> HeldSnapshots:
    """Return a rank's own snapshot."""
    return HeldSnapshots(step=step, generation=generation, own=True, ranks=(rank,))


def copy_of(rank: int, step: int, generation: int = 1) -> HeldSnapshots:
    """Return a peer's snapshot kept as a replica."""
    return changed(own(rank, step, generation), own=False)


def host(host_id: str, *held: HeldSnapshots) -> HostHoldings:
    """Return what a host holds."""
    return HostHoldings(host_id=host_id, address=f"{host_id}.net", peer_port=7000, held=held)


def ask(
    *holdings: HostHoldings,
    generation: int = 2,
    world_size: int = 2,
    from_step: int = -1,
    checkpoints: Iterable[CompleteFacts] = (),
    job_id: str = "job",
    before_step: int = 0,
) -> PlanRestore:
    """Ask for a plan."""
    return PlanRestore(
        job_id=job_id,
        generation=generation,
        world_size=world_size,
        holdings=holdings,
        from_step=from_step,
        at_ms=50,
        checkpoints=tuple(checkpoints),
        before_step=before_step,
    )


def planned(generation: int, step: int) -> RestorePlanned:
    """Return a restart of the past."""
    return RestorePlanned(
        job_id="job",
        generation=generation,
        step=step,
        own_memory=0,
        peer_memory=0,
        object_store=0,
        passed_over=(),
        at_ms=1,
    )


def sources(plan: RestoreLaidOut) -> list[list[str]]:
    """Write a plan's sources for people: for each rank e.g. ``["own h1", "peer h2", "object"]``."""
    return [
        [f"own {holder.host_id}" for holder in plan.holders if rank in holder.own]
        + [f"peer {holder.host_id}" for holder in plan.holders if rank in holder.replicas]
        + ["object"] * any(shard.rank == rank for shard in plan.shards)
        for rank in range(plan.world_size)
    ]


def past(*restarts: tuple[int, int]) -> Sequence[RestorePlanned]:
    """Return restarts as (generation, step)."""
    return [planned(generation, step) for generation, step in restarts]
