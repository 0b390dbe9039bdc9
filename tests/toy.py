"""A small aggregate for tests of the shell: hosts that can be cordoned, with one private event."""

from __future__ import annotations

from dataclasses import dataclass, replace

from everstep.core.decision import Accepted, Rejected
from everstep.eventstore.codec import EventCodec
from everstep.service.handler import Aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Takes a host out, ``times`` times (more than once is for tests of several events)."""

    host_id: str
    times: int = 1
    incident_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Leaves a private remark."""

    host_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCordoned:
    """The same fields as its wire message."""

    host_id: str
    reason: str
    incident_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNoted:
    """Has no wire message: private."""

    host_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How often it was cordoned, and what for."""

    cordoned: int = 0
    incidents: frozenset[str] = frozenset()


Command = Cordon | Note
Event = HostCordoned | HostNoted


def decide(command: Command, host: Host) -> Accepted[Event] | Rejected:
    """Cordon unless that incident was answered; refuse the host called ``bad``."""
    if command.host_id == "bad":
        return Rejected(why="unknown_host", detail="no host 'bad'")
    if isinstance(command, Note):
        return Accepted((HostNoted(host_id=command.host_id, text=command.text),))
    if command.incident_id and command.incident_id in host.incidents:
        return Accepted()
    return Accepted(
        tuple(
            HostCordoned(
                host_id=command.host_id,
                reason=f"cordon {host.cordoned + index + 1}",
                incident_id=command.incident_id,
                at_ms=1_000,
            )
            for index in range(command.times)
        )
    )


def evolve(host: Host, event: Event) -> Host:
    """Count."""
    if isinstance(event, HostNoted):
        return host
    return replace(host, cordoned=host.cordoned + 1, incidents=host.incidents | {event.incident_id})


CODEC: EventCodec[Event] = EventCodec(
    {"host_cordoned.v1": HostCordoned, "host_noted.v1": HostNoted}
)

AGGREGATE: Aggregate[Command, Host, Event] = Aggregate(
    name="host",
    stream_of=lambda command: f"host-{command.host_id}",
    initial=Host,
    decide=decide,
    evolve=evolve,
    codec=CODEC,
)
