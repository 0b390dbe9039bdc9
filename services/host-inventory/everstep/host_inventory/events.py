"""What has happened to the fleet, in the words of ``proto/everstep/v1/hosts.proto``.

Field names and meanings are those of the messages; every time is milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJoined:
    """A host is there, with these facts; also sent when a known host's facts change."""

    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLeft:
    """A host that served no job went away on purpose."""

    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCordoned:
    """The host gets no work from here on.

    ``job_id`` and ``generation`` name the placement that lost it; "" and 0 when a person or the
    monitor cordoned it.
    """

    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUncordoned:
    """The host may get work again."""

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
    | HostErrorsCounted
    | JobPlaced
    | JobReleased
)
