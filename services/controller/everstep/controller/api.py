"""The controller's HTTP API: jobs, for people and research tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from everstep.controller import queries
from everstep.controller.commands import (
    Command,
    DrainHosts,
    LaunchJob,
    PauseJob,
    RestartJob,
    ResumeJob,
    SaveCheckpoint,
    SetInterval,
    StopJob,
)
from everstep.controller.explaining import explained
from everstep.controller.runner import Runner
from everstep.controller.state import Phase
from everstep.controller.waiting import Sources, waits
from everstep.core.decision import Rejected
from everstep.core.errors import InvalidInput, NotFoundError, RefusedError, Unavailable
from everstep.core.ids import slug
from everstep.core.spec import parse_spec
from everstep.core.system import Clock, IdSource
from everstep.eventstore.postgres import PostgresStore

INT64_MAX: Final = 2**63 - 1  # a step is an int64, on the wire and in the tables
ID_WORD_MAX = 40  # leaves room for the random part within an id's 64 characters


class LaunchRequest(BaseModel):
    """A job spec, and an id of the caller's choice to make a repeated request harmless."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any]
    job_id: str | None = Field(default=None, max_length=64)


class RestartRequest(BaseModel):
    """Where to go back to; -1 is the newest restorable step."""

    model_config = ConfigDict(extra="forbid")

    from_step: int = Field(default=-1, ge=-1, le=INT64_MAX)


class IntervalRequest(BaseModel):
    """Steps between two snapshots of each tier, or that measurements should choose them."""

    model_config = ConfigDict(extra="forbid")

    auto: bool = False
    memory_every_steps: int | None = None
    object_every_steps: int | None = None


class ResumeRequest(BaseModel):
    """How to go on with a job that was held."""

    model_config = ConfigDict(extra="forbid")

    skip_batches: bool = Field(default=False, description="leave out those that it is held for")


class DrainRequest(BaseModel):
    """Which hosts the job is to move off, and why."""

    model_config = ConfigDict(extra="forbid")

    hosts: list[str] = Field(min_length=1)
    why: str = Field(default="by hand", max_length=500)


class Accepted202(BaseModel):
    """The command holds; follow the job to see it happen."""

    job_id: str
    phase: str
    generation: int
    checked: str = Field(default="", description="what was looked at before a restart")


def routes(runner: Runner, store: PostgresStore, clock: Clock, ids: IdSource) -> APIRouter:
    """Return the routes, wired to one runner."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    async def act(command: Command) -> Accepted202:
        return await _act(runner, command)

    _add_interval(router, runner, store, clock)

    @router.post("", status_code=201)
    async def launch(body: LaunchRequest) -> Accepted202:
        """Launch a job. The same job_id with the same spec again is answered as the first time."""
        spec = parse_spec(body.spec)
        name = slug(spec.name)[:ID_WORD_MAX]
        job_id = body.job_id or f"{name}-{ids.new_id('')[:6]}"
        return await act(
            LaunchJob(job_id=job_id, spec_json=spec.model_dump_json(), at_ms=clock.now_ms())
        )

    @router.get("")
    async def jobs(*, audits: bool = False) -> dict[str, Any]:
        """List all jobs, newest first; with ``audits`` also those that did a step of them again."""
        async with store.reading() as connection:
            return {"jobs": await queries.all_jobs(connection, with_audits=audits)}

    @router.get("/{job_id}")
    async def job(job_id: str) -> dict[str, Any]:
        """Return a job, its placement, the stages of its generations, and what it waits for."""
        async with store.reading() as connection:
            found = await queries.one_job(connection, job_id)
        if found is None:
            raise NotFoundError(f"there is no job {job_id!r}; `everstep jobs` lists them")
        return {**found, "waits": await _waits(runner, store, job_id)}

    @router.post("/{job_id}/restart", status_code=202)
    async def restart(job_id: str, body: RestartRequest) -> Accepted202:
        """Look at the step's stored objects, end all ranks, and go on from it."""
        looked = await runner.look_at_step(job_id, body.from_step)
        if looked.refusal is not None:
            raise _refused(looked.refusal)
        command = RestartJob(job_id=job_id, from_step=body.from_step, at_ms=clock.now_ms())
        return (await act(command)).model_copy(update={"checked": looked.said})

    @router.post("/{job_id}/stop", status_code=202)
    async def stop(job_id: str) -> Accepted202:
        """End the run after a last common step."""
        return await act(StopJob(job_id=job_id, at_ms=clock.now_ms()))

    @router.post("/{job_id}/pause", status_code=202)
    async def pause(job_id: str) -> Accepted202:
        """End the ranks after a last common step; hosts and memory stay."""
        return await act(PauseJob(job_id=job_id, at_ms=clock.now_ms()))

    @router.post("/{job_id}/resume", status_code=202)
    async def resume(job_id: str, body: ResumeRequest | None = None) -> Accepted202:
        """Go on after a pause."""
        skips = body is not None and body.skip_batches
        return await act(ResumeJob(job_id=job_id, skip_batches=skips, at_ms=clock.now_ms()))

    @router.post("/{job_id}/drain", status_code=202)
    async def drain(job_id: str, body: DrainRequest) -> Accepted202:
        """Move off hosts once spares can take their seats, after a last common step."""
        hosts = tuple(sorted(set(body.hosts)))
        return await act(DrainHosts(job_id=job_id, hosts=hosts, why=body.why, at_ms=clock.now_ms()))

    @router.post("/{job_id}/checkpoint", status_code=202)
    async def checkpoint(job_id: str) -> Accepted202:
        """Write a durable checkpoint at the next step."""
        handled = await runner.apply(SaveCheckpoint(job_id=job_id, at_ms=clock.now_ms()))
        if handled.rejected is not None:
            raise _refused(handled.rejected)
        await runner.save(handled.state)
        job = handled.state
        return Accepted202(job_id=job_id, phase=job.phase.value, generation=job.generation)

    return router


def _add_interval(router: APIRouter, runner: Runner, store: PostgresStore, clock: Clock) -> None:
    @router.get("/{job_id}/interval")
    async def interval(job_id: str) -> dict[str, Any]:
        """Say how often the job snapshots, and why: inputs, formulas, expected waste, history."""
        job = await runner.state(job_id)
        if job.phase is Phase.ABSENT:
            raise NotFoundError(f"there is no job {job_id!r}; `everstep jobs` lists them")
        async with store.reading() as connection:
            history = await queries.intervals(connection, job_id)
        told = explained(job, runner.watch.measured(job_id), at_ms=clock.now_ms())
        return {**told, "history": history}

    @router.post("/{job_id}/interval", status_code=202)
    async def set_interval(job_id: str, body: IntervalRequest) -> Accepted202:
        """Change how often the job snapshots while it runs, or let measurements decide."""
        memory, objects = body.memory_every_steps, body.object_every_steps
        return await _act(
            runner,
            SetInterval(
                job_id=job_id,
                auto=body.auto,
                memory_every_steps=-1 if memory is None else memory,
                object_every_steps=-1 if objects is None else objects,
                at_ms=clock.now_ms(),
            ),
        )


async def _waits(runner: Runner, store: PostgresStore, job_id: str) -> dict[str, Any] | None:
    """Say what keeps a job that is not running yet; None if nothing does."""
    job = await runner.state(job_id)
    async with store.reading() as connection:
        row = await queries.stage_times(connection, job_id, job.generation)
    counts = {name: row.pop(name, None) or 0 for name in ("own_memory", "peer_memory")}
    sources = Sources(**counts, object_store=row.pop("object_store", None) or 0)
    found = waits(job, row, sources, runner.troubles.of(job_id))
    return asdict(found) if found is not None else None


async def _act(runner: Runner, command: Command) -> Accepted202:
    handled = await runner.apply(command)
    if handled.rejected is not None:
        raise _refused(handled.rejected)
    job = handled.state
    return Accepted202(job_id=job.job_id, phase=job.phase.value, generation=job.generation)


def _refused(rejected: Rejected) -> Exception:
    if rejected.why == "unknown_job":
        return NotFoundError(rejected.detail)
    if rejected.why == "object_store_away":
        return Unavailable(rejected.detail)
    if rejected.why in {
        "invalid_spec",
        "invalid_job_id",
        "invalid_interval",
        "invalid_step",
        "no_such_step",
    }:
        return InvalidInput(rejected.detail)
    return RefusedError(rejected.why, rejected.detail)
