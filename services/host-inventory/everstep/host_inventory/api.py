"""The inventory's HTTP API: hosts and who holds them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from everstep.core.decision import Rejected
from everstep.core.errors import NotFoundError, RefusedError
from everstep.core.system import Clock
from everstep.eventstore.postgres import PostgresStore
from everstep.host_inventory import projections, repairs
from everstep.host_inventory.commands import Command, CordonHost, MaintainHost, UncordonHost
from everstep.host_inventory.keeper import FleetKeeper

TIME_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999, the last that can be written


class CordonRequest(BaseModel):
    """Why a person takes the host out of service."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="by hand", max_length=500)


class UncordonRequest(BaseModel):
    """Whether a person answers for the host: without hold-out and probes."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False


class MaintainRequest(BaseModel):
    """Why a person wants the host, and until when [ms since epoch]; 0: until told."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="by hand", max_length=500)
    until_ms: int = Field(default=0, ge=0, le=TIME_MS_MAX)


class ProbeFigure(BaseModel):
    """A measured number; its unit is the end of its name."""

    name: str
    value: float


class Probe(BaseModel):
    """One probe: what it found, and where."""

    name: str
    where: str = Field(description="a core, a device or a partner; empty for the host")
    verdict: str = Field(description="passed, failed or not_run")
    detail: str
    duration_ms: int
    figures: list[ProbeFigure]


class ProbeReport(BaseModel):
    """The newest examination of a host."""

    examination_id: str
    depth: str = Field(description="quick or burn_in")
    at_ms: int
    duration_ms: int
    probes: list[Probe]


class Repair(BaseModel):
    """What became of telling the repair hook of the newest cordon."""

    attempts: int
    delivered_ms: int | None
    given_up_ms: int | None
    last_error: str


class Host(BaseModel):
    """A machine. Times are milliseconds since the epoch."""

    host_id: str
    state: str = Field(description="active, spare, probing, cordoned or left")
    job_id: str = Field(description="the job that holds it, empty for none")
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    joined_at_ms: int
    last_heartbeat_ms: int | None
    error_counts: dict[str, int]
    cordon_reason: str
    cordon_incident_id: str
    cordoned_at_ms: int | None
    awaits: str = Field(description="what it has to pass first: quick, burn_in, or nothing")
    fault: str = Field(
        description="what was wrong: lost, unsound, slow, probe, corrupt, or nothing"
    )
    relapses: int = Field(description="failures that still count")
    held_until_ms: int | None = Field(description="until when it does not come back by itself")
    returns: bool = Field(description="whether it comes back by itself then")
    maintenance: str = Field(description="what a person wants it for, while its job is on it")
    maintenance_until_ms: int | None
    last_probe: ProbeReport | None
    repair: Repair | None = None


class Hosts(BaseModel):
    """The fleet, by host id."""

    hosts: list[Host]


class JobPlacement(BaseModel):
    """Which host runs which ranks of a job, and where its snapshots are copied to."""

    job_id: str
    generation: int
    layout: dict[str, int]
    hosts: list[dict[str, Any]]
    replacements: list[str]
    placed_at_ms: int


class Placements(BaseModel):
    """The jobs that hold hosts."""

    placements: list[JobPlacement]


def routes(keeper: FleetKeeper, store: PostgresStore, clock: Clock) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1", tags=["hosts"])

    async def act(command: Command, host_id: str) -> Host:
        done = await keeper.apply(command)
        if done.rejected is not None:
            raise _refused(done.rejected)
        return await one(host_id)

    @router.get("/hosts")
    async def hosts(*, left: Annotated[bool, Query()] = False) -> Hosts:
        """List the hosts; those that left on purpose only with ``left=true``."""
        async with store.reading() as connection:
            found = await projections.hosts(connection, with_left=left)
        return Hosts(hosts=[Host.model_validate(row) for row in found])

    @router.get("/hosts/{host_id}")
    async def one(host_id: str) -> Host:
        """Return one host."""
        async with store.reading() as connection:
            found = await projections.host(connection, host_id)
            told = await repairs.newest(connection, host_id)
        if found is None:
            raise NotFoundError(f"no host {host_id!r} has ever joined; `everstep hosts` lists them")
        return Host.model_validate({**found, "repair": told})

    @router.post("/hosts/{host_id}/cordon")
    async def cordon(host_id: str, body: CordonRequest | None = None) -> Host:
        """Give the host no more work; its job moves away at its next restart."""
        reason = (body or CordonRequest()).reason
        now_ms = clock.now_ms()
        return await act(
            CordonHost(host_id=host_id, reason=reason, incident_id="", at_ms=now_ms), host_id
        )

    @router.post("/hosts/{host_id}/uncordon")
    async def uncordon(host_id: str, body: UncordonRequest | None = None) -> Host:
        """Give the host work again, when it has passed its probes, or ``now``.

        Ends a hold-out and a maintenance.
        """
        now = (body or UncordonRequest()).now
        return await act(UncordonHost(host_id=host_id, at_ms=clock.now_ms(), now=now), host_id)

    @router.post("/hosts/{host_id}/maintain")
    async def maintain(host_id: str, body: MaintainRequest | None = None) -> Host:
        """Free the host without losing a step, and keep it free.

        Its job moves off it as soon as a spare can take its place; until then it runs on.
        """
        asked = body or MaintainRequest()
        command = MaintainHost(
            host_id=host_id, reason=asked.reason, until_ms=asked.until_ms, at_ms=clock.now_ms()
        )
        return await act(command, host_id)

    @router.get("/placements")
    async def placements() -> Placements:
        """List what every job holds."""
        async with store.reading() as connection:
            found = await projections.placements(connection)
        return Placements(placements=[JobPlacement.model_validate(row) for row in found])

    return router


def _refused(rejected: Rejected) -> Exception:
    if rejected.why == "unknown_host":
        return NotFoundError(rejected.detail)
    return RefusedError(rejected.why, rejected.detail)
