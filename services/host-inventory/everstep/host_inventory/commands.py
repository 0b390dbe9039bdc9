"""What may be asked of the fleet, in the words of ``proto/everstep/v1/hosts.proto``."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.placement import Layout
from everstep.core.probes import ProbeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinHost:
    """An agent has started, or tells changed facts of its host.

    ``heard_ms`` is not on the wire: the shell fills in when it last heard another agent under this
    id (0: never), because heartbeats are no events.
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
    heard_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinHosts:
    """Joins that arrived together, decided one after the other; not on the wire.

    Whoever is refused is left out: the answer to each join is what it would be told now.
    """

    joins: tuple[JoinHost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveHost:
    """An agent goes away on purpose."""

    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonHost:
    """Give the host no more work; ``job_id`` has found it at fault, "" if none has."""

    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonHost:
    """Give the host work again: when it has passed its probes, or ``now``.

    Ends a hold-out and a maintenance, because a person has looked.
    """

    host_id: str
    at_ms: int
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainHost:
    """Free the host without losing a step and keep it free until a person says otherwise.

    ``until_ms``: it comes back by itself from then on; 0: only by a person's word.
    """

    host_id: str
    reason: str
    until_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnHost:
    """Let a host that was held out try to come back, if it is time; not on the wire.

    ``heard_ms`` is when it was heard last (0: not known), because heartbeats are no events.
    """

    host_id: str
    at_ms: int
    heard_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordProbes:
    """What a host's probes said to an agent of this epoch; not on the wire."""

    host_id: str
    agent_epoch: str
    report: ProbeReport
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountErrors:
    """``count`` new errors of ``kind``; ``at_ms`` tells a repeated report from a new one."""

    host_id: str
    kind: str
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceJob:
    """Give the job's ranks hosts for ``generation``; once for each (job_id, generation).

    ``lost_hosts`` are cordoned whatever follows; ``unsound_hosts`` only as far as spares take their
    seats, because a host that works badly is better than a job that waits, with a reason of their
    own. When hosts are short for
    ``layout``, the first of the ``smaller`` ones that fits will do. ``turn`` says how often work
    was placed before that a new job does again: it gets other hosts, if there are others.
    """

    job_id: str
    generation: int
    layout: Layout
    lost_hosts: tuple[str, ...]
    reason: str
    incident_id: str
    at_ms: int
    unsound_hosts: tuple[str, ...] = ()
    unsound_reason: str = ""
    smaller: tuple[Layout, ...] = ()
    turn: int = 0

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Every layout that will do, the most wanted first."""
        return (self.layout, *self.smaller)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJob:
    """Free the job's hosts if it holds them for ``generation`` or an older one (0: for any)."""

    job_id: str
    at_ms: int
    generation: int = 0


Command = (
    JoinHost
    | JoinHosts
    | LeaveHost
    | CordonHost
    | UncordonHost
    | MaintainHost
    | ReturnHost
    | RecordProbes
    | CountErrors
    | PlaceJob
    | ReleaseJob
)
