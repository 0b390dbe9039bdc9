"""Hosts, joins and placements in few words, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.spec import Spec, spec

from everstep.core.placement import Layout, Placement
from everstep.host_inventory.codec import FLEET
from everstep.host_inventory.commands import JoinHost, PlaceJob
from everstep.host_inventory.events import Event, HostJoined, JobPlaced
from everstep.host_inventory.state import Fleet

FLEET_SPEC = spec(FLEET)


def join(
    host_id: str,
    *,
    pod: str = "",
    power: str = "",
    chips: int = 2,
    address: str = "",
    epoch: str = "e1",
    at_ms: int = 1,
    probes: bool = False,
    heard_ms: int = 0,
) -> JoinHost:
    """Return a join; the address follows from the id unless told."""
    return JoinHost(
        host_id=host_id,
        pod=pod,
        power=power,
        chips=chips,
        address=address or f"{host_id}.net",
        peer_port=7000,
        agent_epoch=epoch,
        at_ms=at_ms,
        probes=probes,
        heard_ms=heard_ms,
    )


def joined(command: JoinHost) -> HostJoined:
    """Return the event of a join."""
    return HostJoined(
        host_id=command.host_id,
        pod=command.pod,
        power=command.power,
        chips=command.chips,
        address=command.address,
        peer_port=command.peer_port,
        agent_epoch=command.agent_epoch,
        at_ms=command.at_ms,
        probes=command.probes,
    )


def hosts(pods: Mapping[str, Sequence[str]], *, chips: int = 2) -> tuple[HostJoined, ...]:
    """Return joins of the hosts of each pod; ``chips`` for every host."""
    return tuple(
        joined(join(host_id, pod=pod, chips=chips)) for pod, ids in pods.items() for host_id in ids
    )


def place(
    job_id: str = "job",
    generation: int = 1,
    layout: Layout | None = None,
    lost: Sequence[str] = (),
    *,
    reason: str = "host_lost",
    incident_id: str = "i1",
    at_ms: int = 10,
) -> PlaceJob:
    """Ask for hosts; two ranks of tensor parallel unless told."""
    return PlaceJob(
        job_id=job_id,
        generation=generation,
        layout=layout or Layout(tp=2),
        lost_hosts=tuple(lost),
        reason=reason,
        incident_id=incident_id,
        at_ms=at_ms,
    )


def after(given: Spec, *commands: object) -> Spec:
    """Add what follows from each command in turn; every one must be accepted."""
    for command in commands:
        decision = given.when(command).decision
        assert not hasattr(decision, "why"), decision
        given = given.given(*decision.events)
    return given


def placed(given: Spec, command: PlaceJob) -> JobPlaced:
    """Return the placement that follows from the command."""
    events: Sequence[Event] = given.when(command).decision.events
    last = events[-1]
    assert isinstance(last, JobPlaced), f"expected a placement, got {events}"
    return last


def ranks_of(placement: Placement) -> dict[str, tuple[int, ...]]:
    """Return host -> ranks."""
    return {host.host_id: host.ranks for host in placement.hosts}


def replicas_of(placement: Placement) -> dict[str, str]:
    """Return host -> the host that keeps its snapshots."""
    return {host.host_id: host.replica_host_id for host in placement.hosts}


def fleet_of(given: Spec) -> Fleet:
    """Return the state with its type."""
    state = given.state
    assert isinstance(state, Fleet)
    return state
