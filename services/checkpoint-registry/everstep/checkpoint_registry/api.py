"""The registry's HTTP API: checkpoints, and what lies in hosts' memory."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from everstep.checkpoint_registry import api_judgements, queries
from everstep.checkpoint_registry.api_judgements import Generation, Step
from everstep.checkpoint_registry.commands import Known
from everstep.checkpoint_registry.manifest import sizes_of
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.registry import Registry
from everstep.checkpoint_registry.retention import unusable
from everstep.checkpoint_registry.state import History, Phase, damage_in_words
from everstep.core.errors import NotFoundError
from everstep.core.system import Clock
from everstep.eventstore.postgres import PostgresStore


class ShardInfo(BaseModel):
    """One rank's state in the object store."""

    rank: int
    uri: str
    bytes: int
    checksum: str = Field(description="xxh3-128 of the whole object, hex")


class Checkpoint(BaseModel):
    """One step's checkpoint. Times are milliseconds since the epoch."""

    job_id: str
    step: int
    generation: int
    state: str = Field(description="collecting, stored, complete, deleted or purged")
    complete: bool = Field(description="every shard was read back and the manifest is written")
    restorable: bool = Field(description="a restart may go on from it")
    unusable_why: str = Field(
        description="abandoned (an older generation made it after the step that a later one went "
        "back to), spoilt (an object of it could not be used) or suspect; else empty"
    )
    trust: str = Field(description="clean, suspect or verified")
    trust_why: str = Field(description="who says so, and why; empty when nobody does")
    checked_at_ms: int | None = Field(description="when somebody last read its objects again")
    checked_by: str
    bad_ranks: list[int] = Field(description="whose objects were found bad then")
    damage: str = Field(description="the same in words, with who found it; empty for none")
    pinned: bool = Field(description="kept until it is unpinned")
    pin_note: str
    pinned_by: str
    world_size: int
    shards_stored: int
    bytes: int
    manifest_uri: str
    data_state: Any
    rng_state: Any
    created_at_ms: int
    completed_at_ms: int | None
    deleted_why: str


class WholeCheckpoint(Checkpoint):
    """A checkpoint with its shards."""

    layout: dict[str, int] | None = Field(description="of the job's spec; null if not known")
    shards: list[ShardInfo]


class Checkpoints(BaseModel):
    """By job, newest step first."""

    checkpoints: list[Checkpoint]


class Copy(BaseModel):
    """A snapshot in a host's memory."""

    host_id: str
    step: int
    own: bool
    generation: int
    told_at_ms: int


class RankCopies(BaseModel):
    """Where a rank's snapshots lie."""

    rank: int
    copies: list[Copy]


class Memory(BaseModel):
    """As the hosts told with their newest step; restores are planned from what they say then."""

    job_id: str
    common_step: int | None = Field(description="newest step of which every rank here has a copy")
    ranks: list[RankCopies]


def routes(store: PostgresStore, memory: MemoryMap, registry: Registry, clock: Clock) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/v1/checkpoints", tags=["checkpoints"])
    async def checkpoints(
        *, job_id: str | None = None, deleted: Annotated[bool, Query()] = False
    ) -> Checkpoints:
        """List checkpoints, of one job if asked; deleted ones only with ``deleted=true``."""
        async with store.reading() as connection:
            found = await queries.listed(connection, job_id, with_deleted=deleted)
        if job_id is not None and not found:
            await require_known(job_id)
        job_ids = sorted({row["job_id"] for row in found})
        histories = {job_id: await registry.history(job_id) for job_id in job_ids}
        judged = [_judged(row, histories[row["job_id"]]) for row in found]
        return Checkpoints(checkpoints=[Checkpoint.model_validate(row) for row in judged])

    @router.get("/v1/checkpoints/{job_id}/{step}", tags=["checkpoints"])
    async def checkpoint(job_id: str, step: Step, generation: Generation = None) -> WholeCheckpoint:
        """Return a step's checkpoint with its shards; the newest generation's unless asked."""
        async with store.reading() as connection:
            found = await queries.one(connection, job_id, step, generation)
        if found is None:
            raise _no_checkpoint(job_id, step, generation)
        history = await registry.history(job_id)
        whole = {
            **_judged(found, history),
            "layout": sizes_of(history.layout_of(found["generation"])),
        }
        return WholeCheckpoint.model_validate(whole)

    @router.get("/v1/memory", tags=["checkpoints"])
    async def held(job_id: str) -> Memory:
        """Return where the snapshots of every rank of a running job lie."""
        if not memory.holdings(job_id):
            await require_known(job_id)
        return Memory.model_validate(memory.of_job(job_id))

    async def require_known(job_id: str) -> None:
        """Tell a job that has nothing here from one that there is not."""
        if await registry.history(job_id) != History():
            return
        async with store.reading() as connection:
            if not await queries.is_known(connection, job_id):
                raise NotFoundError(
                    f"the registry has heard of no job {job_id!r}; `everstep jobs` lists them"
                )

    async def newest_of(job_id: str, step: int) -> int:
        async with store.reading() as connection:
            found = await queries.newest_generation(connection, job_id, step)
        if found is None:
            raise _no_checkpoint(job_id, step, None)
        return found

    router.include_router(
        api_judgements.routes(
            registry.judgements, newest_of, registry.history, require_known, clock
        )
    )
    return router


def _no_checkpoint(job_id: str, step: int, generation: int | None) -> NotFoundError:
    of = f" by generation {generation}" if generation is not None else ""
    return NotFoundError(
        f"job {job_id!r} has no checkpoint of step {step}{of}; `everstep checkpoints --job "
        f"{job_id}` lists those that there are"
    )


def _judged(row: dict[str, Any], history: History) -> dict[str, Any]:
    """Add whether a restore would take the checkpoint, what it is worth, and who has pinned it."""
    which = (row["step"], row["generation"])
    known = Known(step=row["step"], generation=row["generation"], complete=row["complete"])
    why = unusable(known, history)
    usable = row["state"] == Phase.COMPLETE and why is None and which not in history.removed_ids
    judged = history.judge(generation=row["generation"], step=row["step"])
    pin = next((pin for pin in history.pins if (pin.step, pin.generation) == which), None)
    check = history.check_of(generation=row["generation"], step=row["step"])
    return {
        **row,
        "checked_at_ms": check.at_ms if check is not None else None,
        "checked_by": check.by if check is not None else "",
        "bad_ranks": list(check.bad_ranks) if check is not None else [],
        "damage": damage_in_words(check) if check is not None else "",
        "restorable": usable,
        "unusable_why": why.value if why is not None else "",
        "trust": judged.trust.value,
        "trust_why": judged.why,
        "pinned": pin is not None,
        "pin_note": pin.note if pin is not None else "",
        "pinned_by": pin.by if pin is not None else "",
    }
