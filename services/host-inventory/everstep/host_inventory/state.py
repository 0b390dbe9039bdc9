"""The fleet as the fold of its events: which hosts there are, and which job holds which.

One aggregate for the whole fleet, because "no host in two jobs" is one rule over all of them.
``evolve`` never refuses a fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from everstep.core.placement import Placement
from everstep.host_inventory.events import (
    Event,
    HostCordoned,
    HostErrorsCounted,
    HostJoined,
    HostLeft,
    HostUncordoned,
    JobPlaced,
    JobReleased,
)

# Chosen: a redelivered incident is minutes old at most; a host with more incidents than this
# between two redeliveries is out for good.
INCIDENTS_REMEMBERED_MAX: Final = 16


class HostState(StrEnum):
    """What a person sees of a host; a cordon outweighs an assignment."""

    ACTIVE = "active"
    SPARE = "spare"
    CORDONED = "cordoned"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """Errors of one kind since the host is known; ``at_ms`` of the newest report."""

    kind: str
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Why a host gets no work."""

    reason: str
    incident_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine. ``job_id`` is the job that holds it, "" for none."""

    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    joined_ms: int
    present: bool = True
    cordon: Cordon | None = None
    uncordoned_ms: int = 0
    job_id: str = ""
    lost_by: tuple[str, int] = ("", 0)  # the newest (job_id, generation) that found it lost
    incidents: tuple[str, ...] = ()  # those that cordoned it, newest last
    errors: tuple[ErrorCount, ...] = ()  # sorted by kind

    @property
    def state(self) -> HostState:
        """Return the one word for it."""
        if not self.present:
            return HostState.LEFT
        if self.cordon is not None:
            return HostState.CORDONED
        return HostState.ACTIVE if self.job_id else HostState.SPARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The newest placement of a job; ``held`` until it is released."""

    job_id: str
    generation: int
    placement: Placement | None
    replacements: tuple[str, ...]
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All hosts and all jobs that were ever placed."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    jobs: Mapping[str, Job] = field(default_factory=dict)


def evolve(fleet: Fleet, event: Event) -> Fleet:
    """Return the fleet after ``event``; an event of an unknown host changes nothing."""
    match event:
        case HostJoined():
            return _with_host(fleet, _joined(fleet.hosts.get(event.host_id), event))
        case JobPlaced():
            return _placed(fleet, event)
        case JobReleased():
            return _released(fleet, event)
        case HostLeft() | HostCordoned() | HostUncordoned() | HostErrorsCounted():
            host = fleet.hosts.get(event.host_id)
            return fleet if host is None else _with_host(fleet, _changed(host, event))
        case _:
            assert_never(event)


def _changed(
    host: Host, event: HostLeft | HostCordoned | HostUncordoned | HostErrorsCounted
) -> Host:
    match event:
        case HostLeft():
            return replace(host, present=False)
        case HostUncordoned():
            return replace(host, cordon=None, uncordoned_ms=event.at_ms)
        case HostErrorsCounted():
            return replace(host, errors=_counted(host.errors, event))
        case HostCordoned():
            incidents = host.incidents
            if event.incident_id:
                incidents = (*incidents, event.incident_id)[-INCIDENTS_REMEMBERED_MAX:]
            return replace(
                host,
                cordon=Cordon(
                    reason=event.reason, incident_id=event.incident_id, at_ms=event.at_ms
                ),
                incidents=incidents,
                lost_by=(event.job_id, event.generation) if event.job_id else host.lost_by,
            )
        case _:
            assert_never(event)


def _joined(known: Host | None, event: HostJoined) -> Host:
    fresh = Host(
        host_id=event.host_id,
        pod=event.pod,
        power=event.power,
        chips=event.chips,
        address=event.address,
        peer_port=event.peer_port,
        agent_epoch=event.agent_epoch,
        joined_ms=event.at_ms,
    )
    if known is None:
        return fresh
    return replace(
        fresh,
        cordon=known.cordon,
        uncordoned_ms=known.uncordoned_ms,
        job_id=known.job_id,
        lost_by=known.lost_by,
        incidents=known.incidents,
        errors=known.errors,
    )


def _counted(errors: tuple[ErrorCount, ...], event: HostErrorsCounted) -> tuple[ErrorCount, ...]:
    before = sum(error.count for error in errors if error.kind == event.kind)
    counted = ErrorCount(kind=event.kind, count=before + event.count, at_ms=event.at_ms)
    others = (error for error in errors if error.kind != event.kind)
    return tuple(sorted((*others, counted), key=lambda error: error.kind))


def _placed(fleet: Fleet, event: JobPlaced) -> Fleet:
    held = frozenset(event.placement.host_ids)
    hosts = dict(fleet.hosts)
    for host_id in _held_hosts(fleet, event.job_id) - held:
        hosts[host_id] = replace(hosts[host_id], job_id="")
    for host_id in held & hosts.keys():
        if hosts[host_id].job_id != event.job_id:
            hosts[host_id] = replace(hosts[host_id], job_id=event.job_id)
    job = Job(
        job_id=event.job_id,
        generation=event.generation,
        placement=event.placement,
        replacements=event.replacements,
        held=True,
    )
    return Fleet(hosts=hosts, jobs={**fleet.jobs, event.job_id: job})


def _released(fleet: Fleet, event: JobReleased) -> Fleet:
    hosts = dict(fleet.hosts)
    for host_id in _held_hosts(fleet, event.job_id):
        hosts[host_id] = replace(hosts[host_id], job_id="")
    known = fleet.jobs.get(event.job_id)
    job = Job(
        job_id=event.job_id,
        generation=max(event.generation, known.generation if known else 0),
        placement=known.placement if known else None,
        replacements=(),
        held=False,
    )
    return Fleet(hosts=hosts, jobs={**fleet.jobs, event.job_id: job})


def _held_hosts(fleet: Fleet, job_id: str) -> frozenset[str]:
    job = fleet.jobs.get(job_id)
    if job is None or job.placement is None or not job.held:
        return frozenset()
    return frozenset(job.placement.host_ids) & fleet.hosts.keys()


def _with_host(fleet: Fleet, host: Host) -> Fleet:
    return replace(fleet, hosts={**fleet.hosts, host.host_id: host})
