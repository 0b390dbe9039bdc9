"""The inventory's HTTP API: hosts and who holds them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from everstep.core.decision import Rejected
from everstep.core.errors import NotFoundError, RefusedError
from everstep.core.system import Clock
from everstep.eventstore.postgres import PostgresStore
from everstep.host_inventory import projections
from everstep.host_inventory.commands import Command, CordonHost, UncordonHost
from everstep.host_inventory.keeper import FleetKeeper


class CordonRequest(BaseModel):
    """Why a person takes the host out of service."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="by hand", max_length=500)


class Host(BaseModel):
    """A machine. Times are milliseconds since the epoch."""

    host_id: str
    state: str = Field(description="active, spare, cordoned or left")
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
        if found is None:
            raise NotFoundError(f"no host {host_id!r} has ever joined")
        return Host.model_validate(found)

    @router.post("/hosts/{host_id}/cordon")
    async def cordon(host_id: str, body: CordonRequest | None = None) -> Host:
        """Give the host no more work; its job moves away at its next restart."""
        reason = (body or CordonRequest()).reason
        now_ms = clock.now_ms()
        return await act(
            CordonHost(host_id=host_id, reason=reason, incident_id="", at_ms=now_ms), host_id
        )

    @router.post("/hosts/{host_id}/uncordon")
    async def uncordon(host_id: str) -> Host:
        """Give the host work again."""
        return await act(UncordonHost(host_id=host_id, at_ms=clock.now_ms()), host_id)

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
