"""What has happened to the fleet, in the words of ``proto/everstep/v1/hosts.proto``.

Field names and meanings are those of the messages; every time is milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.placement import Placement
from everstep.core.probes import Depth, ProbeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJoined:
    """A host is there, with these facts; also sent when a known host's facts change.

    ``probes``: its agent answers ``cmd.examine``; agents from before that do not.
    """

    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int
    probes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLeft:
    """A host that served no job went away on purpose."""

    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCordoned:
    """The host gets no work from here on.

    ``job_id`` and ``generation`` name the placement that lost it; "" and 0 when a person or the
    monitor cordoned it. The rest is what was decided about its way back (``care``): for
    ``held_ms`` it does not come back by itself, and after that only if ``returns``.
    """

    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str = ""
    generation: int = 0
    fault: str = ""
    relapses: int = 0
    held_ms: int = 0
    returns: bool = False
    maintenance: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUncordoned:
    """The host may get work again."""

    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReturning:
    """A cordoned host is on its way back; it is to pass probes of this depth first."""

    host_id: str
    depth: Depth
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProbed:
    """Probes decided something: that the host may work, may not, or that a link is in doubt.

    What passes and was not waited for is no event: idle spares are probed for years.
    """

    host_id: str
    passed: bool
    report: ProbeReport
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlanned:
    """A person wants the host free: its job is to move off it; then it is cordoned.

    ``until_ms`` is when it may come back by itself; 0: when a person says so.
    """

    host_id: str
    reason: str
    until_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEnded:
    """The person does not want it any more, before it began."""

    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostErrorsCounted:
    """``count`` more errors of ``kind`` were seen on the host."""

    host_id: str
    kind: str
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaced:
    """The job's ranks have hosts for this generation; those of older ones are free again."""

    job_id: str
    generation: int
    placement: Placement
    replacements: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The job holds no hosts any more, and placements up to ``generation`` are over."""

    job_id: str
    at_ms: int
    generation: int = 0


Event = (
    HostJoined
    | HostLeft
    | HostCordoned
    | HostUncordoned
    | HostReturning
    | HostProbed
    | MaintenancePlanned
    | MaintenanceEnded
    | HostErrorsCounted
    | JobPlaced
    | JobReleased
)
