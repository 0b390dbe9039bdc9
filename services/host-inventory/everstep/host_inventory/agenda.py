"""What hosts need now: probes, the end of a hold-out, a job that is to move off them.

A function of the fleet, the time and what was tried lately, so the simulator asks the same one.
Probes of idle spares are spread by their ids over the whole period, and such a host stays a spare
meanwhile: the agent gives way to ranks at once, so nobody ever waits for a spare that is being
probed. A host that still has to pass is no spare, and is asked until it answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from everstep.core.probes import Depth
from everstep.host_inventory.care import Care, may_return
from everstep.host_inventory.state import Fleet, Host, HostState

# An agent that is about to come up answers within seconds; one that is gone costs a request each
# half a minute.
RETRY_MS: Final = 1_000
RETRY_MS_MAX: Final = 30_000
DRAIN_AGAIN_MS: Final = 10_000  # a job that comes up refuses or forgets; asking again costs nothing
# All hosts of a cluster that was just switched on: more at once would only fill the queues.
AT_ONCE_MAX: Final = 256
NOBODY: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """When something was asked of a host last, and how often in a row nothing came of it.

    Of the agent with this epoch: a new one is asked at once.
    """

    agent_epoch: str
    at_ms: int
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examine:
    """Let a host run its probes; ``partner``: the idle host that its link is tested to."""

    host_id: str
    agent_epoch: str
    depth: Depth
    partner: Host | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """Let a host that was held out try to come back; ``heard_ms``: when it was heard, 0: never."""

    host_id: str
    agent_epoch: str
    heard_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Ask a job to move off a host that a person wants."""

    host_id: str
    agent_epoch: str
    job_id: str
    why: str


Need = Examine | Return | Drain


def needs(
    fleet: Fleet,
    now_ms: int,
    care: Care,
    tried: Mapping[str, Tried],
    rounds: Mapping[str, int],
    heard_ms: Mapping[str, int] = NOBODY,
) -> tuple[Need, ...]:
    """Return what is to be done now, by host.

    Args:
        fleet: as it is.
        now_ms: now.
        care: the limits.
        tried: what was asked lately, by host.
        rounds: the last round (``round_of``) in which each idle spare was probed.
        heard_ms: when each host was heard last.
    """
    spares = [host for _, host in sorted(fleet.hosts.items()) if host.state is HostState.SPARE]
    found: list[Need] = []
    for host_id, host in sorted(fleet.hosts.items()):
        last, epoch = tried.get(host_id), host.agent_epoch
        if last is not None and last.agent_epoch != epoch:
            last = None
        if host.maintenance is not None and host.job_id and host.cordon is None:
            if _rested(last, now_ms, DRAIN_AGAIN_MS):
                why = host.maintenance.reason
                drain = Drain(host_id=host_id, agent_epoch=epoch, job_id=host.job_id, why=why)
                found.append(drain)
        elif may_return(host, now_ms, heard_ms.get(host_id, 0)):
            heard = heard_ms.get(host_id, 0)
            found.append(Return(host_id=host_id, agent_epoch=epoch, heard_ms=heard))
        elif _to_be_probed(host, now_ms, care, last, rounds):
            partner = _partner(host, spares, round_of(host_id, now_ms, care))
            depth = host.awaits or Depth.QUICK
            found.append(Examine(host_id=host_id, agent_epoch=epoch, depth=depth, partner=partner))
    return tuple(found[:AT_ONCE_MAX])


def round_of(host_id: str, now_ms: int, care: Care) -> int:
    """Return how many times an idle host should have been probed since the epoch."""
    return (now_ms + crc32(host_id.encode()) % care.check_every_ms) // care.check_every_ms


def _to_be_probed(
    host: Host, now_ms: int, care: Care, tried: Tried | None, rounds: Mapping[str, int]
) -> bool:
    if not (host.present and host.probes):
        return False
    if host.state is HostState.PROBING or (host.state is HostState.SPARE and host.doubts):
        failures = tried.failures if tried is not None else 0
        return _rested(tried, now_ms, min(RETRY_MS << min(failures, 8), RETRY_MS_MAX))
    if host.state is not HostState.SPARE:
        return False
    now = round_of(host.host_id, now_ms, care)
    return rounds.get(host.host_id, now) < now


def _rested(tried: Tried | None, now_ms: int, pause_ms: int) -> bool:
    return tried is None or now_ms - tried.at_ms >= pause_ms


def _partner(host: Host, spares: Sequence[Host], turn: int) -> Host | None:
    """Choose another one each time, and not one that the link to has just failed."""
    others = [one for one in spares if one.host_id != host.host_id and one.peer_port]
    fresh = [one for one in others if one.host_id not in host.doubts] or others
    start = crc32(host.host_id.encode()) + turn + len(host.doubts)
    return fresh[start % len(fresh)] if fresh else None
