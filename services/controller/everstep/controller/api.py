"""The controller's HTTP API: jobs, for people and research tools."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from everstep.controller import queries
from everstep.controller.commands import (
    Command,
    LaunchJob,
    PauseJob,
    RestartJob,
    ResumeJob,
    SaveCheckpoint,
    StopJob,
)
from everstep.controller.runner import Runner
from everstep.core.decision import Rejected
from everstep.core.errors import InvalidInput, NotFoundError, RefusedError
from everstep.core.ids import slug
from everstep.core.spec import parse_spec
from everstep.core.system import Clock, IdSource
from everstep.eventstore.postgres import PostgresStore

ID_WORD_MAX = 40  # leaves room for the random part within an id's 64 characters


class LaunchRequest(BaseModel):
    """A job spec, and an id of the caller's choice to make a repeated request harmless."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any]
    job_id: str | None = Field(default=None, max_length=64)


class RestartRequest(BaseModel):
    """Where to go back to; -1 is the newest restorable step."""

    model_config = ConfigDict(extra="forbid")

    from_step: int = Field(default=-1, ge=-1)


class Accepted202(BaseModel):
    """The command holds; follow the job to see it happen."""

    job_id: str
    phase: str
    generation: int


def routes(runner: Runner, store: PostgresStore, clock: Clock, ids: IdSource) -> APIRouter:
    """Return the routes, wired to one runner."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    async def act(command: Command) -> Accepted202:
        handled = await runner.apply(command)
        if handled.rejected is not None:
            raise _refused(handled.rejected)
        job = handled.state
        return Accepted202(job_id=job.job_id, phase=job.phase.value, generation=job.generation)

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
    async def jobs() -> dict[str, Any]:
        """List all jobs, newest first."""
        async with store.reading() as connection:
            return {"jobs": await queries.all_jobs(connection)}

    @router.get("/{job_id}")
    async def job(job_id: str) -> dict[str, Any]:
        """Return a job, its placement, and the stages of each of its generations."""
        async with store.reading() as connection:
            found = await queries.one_job(connection, job_id)
        if found is None:
            raise NotFoundError(f"there is no job {job_id!r}; `everstep jobs` lists them")
        return found

    @router.post("/{job_id}/restart", status_code=202)
    async def restart(job_id: str, body: RestartRequest) -> Accepted202:
        """End all ranks and go on from a step that can be restored."""
        refusal = await runner.step_refusal(job_id, body.from_step)
        if refusal:
            raise InvalidInput(refusal)
        return await act(RestartJob(job_id=job_id, from_step=body.from_step, at_ms=clock.now_ms()))

    @router.post("/{job_id}/stop", status_code=202)
    async def stop(job_id: str) -> Accepted202:
        """End the run after a last common step."""
        return await act(StopJob(job_id=job_id, at_ms=clock.now_ms()))

    @router.post("/{job_id}/pause", status_code=202)
    async def pause(job_id: str) -> Accepted202:
        """End the ranks after a last common step; hosts and memory stay."""
        return await act(PauseJob(job_id=job_id, at_ms=clock.now_ms()))

    @router.post("/{job_id}/resume", status_code=202)
    async def resume(job_id: str) -> Accepted202:
        """Go on after a pause."""
        return await act(ResumeJob(job_id=job_id, at_ms=clock.now_ms()))

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


def _refused(rejected: Rejected) -> Exception:
    if rejected.why == "unknown_job":
        return NotFoundError(rejected.detail)
    if rejected.why in {"invalid_spec", "invalid_job_id"}:
        return InvalidInput(rejected.detail)
    return RefusedError(rejected.why, rejected.detail)
