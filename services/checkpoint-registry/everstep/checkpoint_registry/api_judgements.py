"""The registry's HTTP API, continued: pins, trust, suspicions, and what would be restored now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from everstep.checkpoint_registry.commands import (
    DecideTrust,
    EndSuspicion,
    NoteCheck,
    PinCheckpoint,
    SuspectSteps,
    UnpinCheckpoint,
)
from everstep.checkpoint_registry.judgements import PERSON, Judgements, Outlook, Told
from everstep.checkpoint_registry.policy import FRESH, preferred_counts
from everstep.checkpoint_registry.state import History
from everstep.checkpoint_registry.trust import OPEN, Suspicion, Trust, described, unresolved
from everstep.core.decision import Rejected
from everstep.core.errors import InvalidInput, NotFoundError, RefusedError
from everstep.core.system import Clock

INT64_MAX: Final = 2**63 - 1  # a step or a generation is an int64, on the wire and in the tables
TEXT_MAX: Final = 500  # characters; a reason is a sentence or two
RANKS_MAX: Final = 1_000_000  # chosen: some seconds to read, and more than any job has


Step = Annotated[int, Path(ge=0, le=INT64_MAX)]
Generation = Annotated[int | None, Query(ge=1, le=INT64_MAX)]
FromStep = Annotated[int, Query(ge=FRESH, le=INT64_MAX)]
Text = Annotated[str, Field(max_length=TEXT_MAX)]
By = Annotated[str, Query(max_length=TEXT_MAX)]

NewestOf = Callable[[str, int], Awaitable[int]]
HistoryOf = Callable[[str], Awaitable[History]]
RequireKnown = Callable[[str], Awaitable[None]]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    by: Text = Field(default=PERSON, description="who says so")


class PinBody(_Body):
    """A pin."""

    note: Text = ""


class TrustBody(_Body):
    """A word about a checkpoint."""

    trust: Trust
    why: Text = ""


class CheckBody(_Body):
    """What reading a checkpoint's objects again has shown."""

    whole: bool = Field(description="every object was read")
    bad_ranks: list[int] = Field(
        max_length=RANKS_MAX, description="of the objects that are not what was stored"
    )
    why: Text = Field(default="", description="in what way they are bad")


class SuspectBody(_Body):
    """A stretch of steps that may be bad."""

    from_step: int = Field(ge=0, le=INT64_MAX)
    to_step: int = Field(
        default=OPEN, ge=OPEN, le=INT64_MAX, description="-1: whatever they come to"
    )
    why: Text = ""


class EndBody(_Body):
    """The end of a suspicion."""

    false_alarm: bool = Field(default=False, description="nothing of it was bad")
    why: Text = ""


class Named(BaseModel):
    """The checkpoint that was meant."""

    job_id: str
    step: int
    generation: int


class SuspicionInfo(BaseModel):
    """A stretch of steps that is not restored. Times are milliseconds since the epoch."""

    suspicion_id: str
    kind: str = Field(description="the incident's, or by_hand")
    generation: int = Field(description="made by this one or an older one")
    from_step: int
    to_step: int = Field(description="-1: whatever they come to")
    why: str
    by: str
    at_ms: int
    resolved: bool = Field(description="nothing before it has to be kept on its account")
    described: str


class Suspicions(BaseModel):
    """In the order in which they were raised."""

    suspicions: list[SuspicionInfo]


class RankSources(BaseModel):
    """Where a rank would load from, by preference."""

    rank: int
    sources: list[str] = Field(description="own HOST, peer HOST, or object KEY")


class RestorePlan(BaseModel):
    """What would be restored now, as far as the registry knows; nothing is decided by asking."""

    job_id: str
    generation: int
    world_size: int
    restorable: bool = Field(description="false: see refused")
    refused: str
    step: int = Field(description="-1: from nothing, or not at all")
    own_memory: int = Field(description="ranks by preferred source")
    peer_memory: int
    object_store: int
    passed_over: list[str] = Field(description="newer steps, and why not")
    ranks: list[RankSources]


def routes(
    judgements: Judgements,
    newest_of: NewestOf,
    history_of: HistoryOf,
    require_known: RequireKnown,
    clock: Clock,
) -> APIRouter:
    """Return the routes.

    Args:
        judgements: what people and the monitor say of checkpoints.
        newest_of: returns the newest generation with a step's checkpoint.
        history_of: returns what is known of a job.
        require_known: raises NotFoundError for a job that nobody has told of.
        clock: real time.
    """
    router = APIRouter(prefix="/v1", tags=["judgements"])

    async def decide(command: Told) -> History:
        done = await judgements.decide(command)
        if done.rejected is not None:
            raise _refused(done.rejected)
        return done.state

    @router.put("/checkpoints/{job_id}/{step}/pin")
    async def pin(job_id: str, step: Step, body: PinBody, generation: Generation = None) -> Named:
        """Keep a checkpoint until it is unpinned; the newest generation's unless asked."""
        which = generation or await newest_of(job_id, step)
        await decide(
            PinCheckpoint(
                job_id=job_id,
                step=step,
                generation=which,
                note=body.note,
                by=body.by,
                at_ms=clock.now_ms(),
            )
        )
        return Named(job_id=job_id, step=step, generation=which)

    @router.delete("/checkpoints/{job_id}/{step}/pin")
    async def unpin(
        job_id: str, step: Step, generation: Generation = None, by: By = PERSON
    ) -> Named:
        """Let retention give a checkpoint up again; of a step, the pinned one unless asked."""
        pins = (await history_of(job_id)).pins
        pinned = max((pin.generation for pin in pins if pin.step == step), default=0)
        which = generation or pinned or await newest_of(job_id, step)
        await decide(
            UnpinCheckpoint(job_id=job_id, step=step, generation=which, by=by, at_ms=clock.now_ms())
        )
        return Named(job_id=job_id, step=step, generation=which)

    @router.post("/checkpoints/{job_id}/{step}/trust")
    async def trust(
        job_id: str, step: Step, body: TrustBody, generation: Generation = None
    ) -> Named:
        """Say what a checkpoint is worth: clean, suspect, or verified."""
        which = generation or await newest_of(job_id, step)
        await decide(
            DecideTrust(
                job_id=job_id,
                step=step,
                generation=which,
                trust=body.trust,
                why=body.why,
                by=body.by,
                at_ms=clock.now_ms(),
            )
        )
        return Named(job_id=job_id, step=step, generation=which)

    @router.post("/checkpoints/{job_id}/{step}/check")
    async def check(
        job_id: str, step: Step, body: CheckBody, generation: Generation = None
    ) -> Named:
        """Say what reading a checkpoint's objects again has shown: bad ones are not restored."""
        which = generation or await newest_of(job_id, step)
        await decide(
            NoteCheck(
                job_id=job_id,
                step=step,
                generation=which,
                bad_ranks=tuple(sorted(set(body.bad_ranks))),
                whole=body.whole,
                why=body.why,
                by=body.by,
                at_ms=clock.now_ms(),
            )
        )
        return Named(job_id=job_id, step=step, generation=which)

    @router.get("/jobs/{job_id}/suspicions")
    async def suspicions(job_id: str) -> Suspicions:
        """List what is suspected of a job's steps."""
        await require_known(job_id)
        return _listed(await history_of(job_id))

    @router.post("/jobs/{job_id}/suspicions", status_code=201)
    async def suspect(job_id: str, body: SuspectBody) -> Suspicions:
        """Restore nothing of a stretch of steps, in memory or stored."""
        command = SuspectSteps(
            job_id=job_id,
            suspicion_id="",
            generation=0,
            from_step=body.from_step,
            to_step=body.to_step,
            why=body.why,
            by=body.by,
            at_ms=clock.now_ms(),
        )
        return _listed(await decide(command))

    @router.post("/jobs/{job_id}/suspicions/{suspicion_id}/end")
    async def end(job_id: str, suspicion_id: str, body: EndBody) -> Suspicions:
        """Say that a suspicion is dealt with, or that nothing was bad."""
        command = EndSuspicion(
            job_id=job_id,
            suspicion_id=suspicion_id,
            false_alarm=body.false_alarm,
            why=body.why,
            by=body.by,
            at_ms=clock.now_ms(),
        )
        return _listed(await decide(command))

    @router.get("/jobs/{job_id}/restore-plan")
    async def restore_plan(job_id: str, from_step: FromStep = FRESH) -> RestorePlan:
        """Say what a restart would restore now, from where, and why nothing newer."""
        outlook = await judgements.outlook(job_id, from_step)
        if not outlook.world_size:
            raise NotFoundError(
                f"nothing is known of job {job_id!r}: no spec, no checkpoint, nothing in memory"
            )
        return await asyncio.to_thread(_told, job_id, outlook)

    return router


def _listed(history: History) -> Suspicions:
    open_ones = unresolved(history.beliefs, history.lineage)
    found = history.beliefs.suspicions
    return Suspicions(suspicions=[_info(one, resolved=one not in open_ones) for one in found])


def _info(one: Suspicion, *, resolved: bool) -> SuspicionInfo:
    return SuspicionInfo(
        suspicion_id=one.suspicion_id,
        kind=one.kind,
        generation=one.generation,
        from_step=one.from_step,
        to_step=one.to_step,
        why=one.why,
        by=one.by,
        at_ms=one.at_ms,
        resolved=resolved,
        described=described(one),
    )


def _told(job_id: str, outlook: Outlook) -> RestorePlan:
    plan = outlook.plan
    if isinstance(plan, Rejected):
        return RestorePlan(
            job_id=job_id,
            generation=outlook.generation,
            world_size=outlook.world_size,
            restorable=False,
            refused=plan.detail,
            step=FRESH,
            own_memory=0,
            peer_memory=0,
            object_store=0,
            passed_over=[],
            ranks=[],
        )
    laid_out = plan.laid_out
    own, peer, stored = preferred_counts(laid_out)
    sources: dict[int, list[str]] = {rank: [] for rank in range(laid_out.world_size)}
    for kind in ("own", "peer"):
        for holder in laid_out.holders:
            for rank in holder.own if kind == "own" else holder.replicas:
                sources[rank].append(f"{kind} {holder.host_id}")
    for shard in laid_out.shards:
        sources[shard.rank].append(f"object {shard.uri}")
    return RestorePlan(
        job_id=job_id,
        generation=outlook.generation,
        world_size=outlook.world_size,
        restorable=True,
        refused="",
        step=laid_out.step,
        own_memory=own,
        peer_memory=peer,
        object_store=stored,
        passed_over=list(plan.passed_over),
        ranks=[RankSources(rank=rank, sources=found) for rank, found in sorted(sources.items())],
    )


def _refused(rejected: Rejected) -> Exception:
    if rejected.why in {"no_such_job", "no_such_checkpoint", "no_such_suspicion"}:
        return NotFoundError(rejected.detail)
    if rejected.why in {"bad_job_id", "bad_span", "bad_trust", "bad_rank"}:
        return InvalidInput(rejected.detail)
    return RefusedError(rejected.why, rejected.detail)
