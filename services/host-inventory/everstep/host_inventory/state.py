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
from everstep.core.probes import Depth
from everstep.host_inventory.events import (
    Event,
    HostCordoned,
    HostErrorsCounted,
    HostJoined,
    HostLeft,
    HostProbed,
    HostReturning,
    HostUncordoned,
    JobPlaced,
    JobReleased,
    MaintenanceEnded,
    MaintenancePlanned,
)

# Chosen: a redelivered incident is minutes old at most; a host with more incidents than this
# between two redeliveries is out for good.
INCIDENTS_REMEMBERED_MAX: Final = 16
# Chosen: a host sends a report of a kind again until it is answered, and only then the next one, so
# a copy of an earlier one is late by seconds; 8 reports, a minute apart, are eight minutes.
REPORTS_REMEMBERED_MAX: Final = 8
DOUBTS_KEPT_MAX: Final = 4  # more than it takes to cordon a host


class HostState(StrEnum):
    """What a person sees of a host; a cordon outweighs an assignment."""

    ACTIVE = "active"
    SPARE = "spare"
    PROBING = "probing"  # gets no work until its probes have passed
    CORDONED = "cordoned"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """Errors of one kind since the host is known.

    ``reports_ms`` are the times of the newest reports by the host's clock, in the order in which
    they came: they tell one report from another, and not which is newer, for clocks are set back.
    """

    kind: str
    count: int
    reports_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Why a host gets no work, and how it comes back; see ``HostCordoned``."""

    reason: str
    incident_id: str
    at_ms: int
    job_id: str = ""  # whose placement lost it
    fault: str = ""
    held_ms: int = 0
    returns: bool = False
    maintenance: bool = False
    rejoined: bool = False  # its agent is another one since


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """What a person wants a host for, and until when; 0: until told."""

    reason: str
    until_ms: int


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
    probes: bool = False  # its agent can be asked to
    awaits: Depth | None = None  # what it has to pass before it may work
    relapses: int = 0
    doubts: tuple[str, ...] = ()  # partners to which its link failed lately, newest last
    examined: str = ""  # the newest examination that decided something
    maintenance: Maintenance | None = None

    @property
    def state(self) -> HostState:
        """Return the one word for it."""
        if not self.present:
            return HostState.LEFT
        if self.awaits is not None:
            return HostState.PROBING
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
        case (
            HostLeft()
            | HostCordoned()
            | HostUncordoned()
            | HostErrorsCounted()
            | HostReturning()
            | HostProbed()
            | MaintenancePlanned()
            | MaintenanceEnded()
        ):
            host = fleet.hosts.get(event.host_id)
            return fleet if host is None else _with_host(fleet, _changed(host, event))
        case _:
            assert_never(event)


_OfOneHost = (
    HostLeft
    | HostCordoned
    | HostUncordoned
    | HostErrorsCounted
    | HostReturning
    | HostProbed
    | MaintenancePlanned
    | MaintenanceEnded
)


def _changed(host: Host, event: _OfOneHost) -> Host:
    match event:
        case HostLeft():
            return replace(host, present=False)
        case HostUncordoned():
            return replace(
                host, cordon=None, uncordoned_ms=event.at_ms, awaits=None, maintenance=None
            )
        case HostErrorsCounted():
            return replace(host, errors=_counted(host.errors, event))
        case HostReturning():
            return replace(host, awaits=event.depth)
        case HostProbed():
            return _probed(host, event)
        case MaintenancePlanned():
            wish = Maintenance(reason=event.reason, until_ms=event.until_ms)
            return replace(host, maintenance=wish)
        case MaintenanceEnded():
            return replace(host, maintenance=None)
        case HostCordoned():
            return _cordoned(host, event)
        case _:
            assert_never(event)


def _cordoned(host: Host, event: HostCordoned) -> Host:
    incidents = host.incidents
    if event.incident_id:
        incidents = (*incidents, event.incident_id)[-INCIDENTS_REMEMBERED_MAX:]
    cordon = Cordon(
        reason=event.reason,
        incident_id=event.incident_id,
        at_ms=event.at_ms,
        job_id=event.job_id,
        fault=event.fault,
        held_ms=event.held_ms,
        returns=event.returns,
        maintenance=event.maintenance,
    )
    return replace(
        host,
        cordon=cordon,
        incidents=incidents,
        lost_by=(event.job_id, event.generation) if event.job_id else host.lost_by,
        relapses=event.relapses,
        awaits=None,
        doubts=(),
        maintenance=None,
    )


def _probed(host: Host, event: HostProbed) -> Host:
    examined = event.report.examination_id
    if event.passed:
        awaits = None if host.cordon is None else host.awaits  # HostUncordoned comes with it
        return replace(host, awaits=awaits, doubts=(), examined=examined)
    partners = (one.where for one in event.report.failed(pair=True))
    return replace(host, doubts=(*host.doubts, *partners)[-DOUBTS_KEPT_MAX:], examined=examined)


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
        probes=event.probes,
    )
    unproven = Depth.QUICK if event.probes else None
    if known is None:
        return replace(fresh, awaits=unproven)
    cordon, came_up = known.cordon, event.agent_epoch != known.agent_epoch
    awaits = known.awaits
    if came_up and cordon is not None:
        cordon = replace(cordon, rejoined=True)
    elif came_up and not known.job_id:
        awaits = unproven
    return replace(
        fresh,
        cordon=cordon,
        awaits=awaits,
        relapses=known.relapses,
        doubts=known.doubts,
        examined=known.examined,
        maintenance=known.maintenance,
        uncordoned_ms=known.uncordoned_ms,
        job_id=known.job_id,
        lost_by=known.lost_by,
        incidents=known.incidents,
        errors=known.errors,
    )


def _counted(errors: tuple[ErrorCount, ...], event: HostErrorsCounted) -> tuple[ErrorCount, ...]:
    known = next((error for error in errors if error.kind == event.kind), None)
    before, earlier = (known.count, known.reports_ms) if known is not None else (0, ())
    counted = ErrorCount(
        kind=event.kind,
        count=before + event.count,
        reports_ms=(*earlier, event.at_ms)[-REPORTS_REMEMBERED_MAX:],
    )
    others = (error for error in errors if error.kind != event.kind)
    return tuple(sorted((*others, counted), key=lambda error: error.kind))


def _placed(fleet: Fleet, event: JobPlaced) -> Fleet:
    held = event.placement.host_set
    hosts = dict(fleet.hosts)
    for host_id in _held_hosts(fleet, event.job_id, but=held):
        hosts[host_id] = replace(hosts[host_id], job_id="")
    for host_id, host in fleet.hosts.items():
        if host.job_id != event.job_id and host_id in held:  # few: most were its own before
            hosts[host_id] = replace(host, job_id=event.job_id)
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
    for host_id in _held_hosts(fleet, event.job_id, but=frozenset()):
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


def _held_hosts(fleet: Fleet, job_id: str, *, but: frozenset[str]) -> frozenset[str]:
    job = fleet.jobs.get(job_id)
    if job is None or job.placement is None or not job.held:
        return frozenset()
    return (job.placement.host_set - but) & fleet.hosts.keys()


def _with_host(fleet: Fleet, host: Host) -> Fleet:
    return replace(fleet, hosts={**fleet.hosts, host.host_id: host})
