"""How long a host that failed stays out, and how it comes back.

A host that failed by its own fault is held out, longer with every relapse, and passes a burn-in
before it works again; one that a person took away passes the quick probes. Relapses are forgiven
one by one while the host does its work. The numbers of each decision are in its event, so a change
of these limits changes no history.

Rejected: throwing a host out for good after so many failures. Nobody looks at a host that is out
for good, and one that fails once a day costs a run a minute a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.probes import Depth, ProbeReport, in_words
from everstep.core.time import HOUR_MS, MINUTE_MS
from everstep.host_inventory.events import HostCordoned
from everstep.host_inventory.state import Host

# A failure costs its job about a minute (PEERS 3: 65 s at 16,384 GPUs). A host that is back after
# ten minutes and fails at once costs it at most a tenth of its time, and with the doubling 15
# minutes in the first 24 hours at most.
HOLD_MS: Final = 10 * MINUTE_MS
# A day: by then somebody has looked, and a host that fails once a day costs its job 0.1 %.
HOLD_MS_MAX: Final = 24 * HOUR_MS
# As long as the longest hold: whoever works for as long as it could be held out is trusted again,
# by one relapse. Chosen, not measured.
SOUND_MS: Final = 24 * HOUR_MS
# A year: what is away for longer comes back as another machine. Chosen; a slip of a digit is told.
MAINTENANCE_MS_MAX: Final = 366 * 24 * HOUR_MS
RELAPSES_COUNTED_MAX: Final = 32  # doubling more often would say nothing new
CHECK_EVERY_MS: Final = 10 * MINUTE_MS  # of an idle spare: a day's 144 looks cost it 2 minutes
BURN_IN_S: Final = 60  # chosen, not measured: some thousands of products, all of its memory's share
# As five heartbeats: who was heard within this time is there now.
HEARD_MS: Final = 5_000
# Partners in a row to which a link failed, until it is held against the host and not the partner.
DOUBTS_MAX: Final = 2


class Fault(StrEnum):
    """What was wrong with a host; of its own making, all but ``NONE``."""

    NONE = ""
    LOST = "lost"  # silent, or gone
    UNSOUND = "unsound"  # works badly
    SLOW = "slow"
    PROBE = "probe"  # its probes gave wrong answers
    CORRUPT = "corrupt"  # it computed or kept something wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """The limits [ms]; ``returns`` are the faults after which a host comes back by itself."""

    hold_ms: int = HOLD_MS
    hold_ms_max: int = HOLD_MS_MAX
    sound_ms: int = SOUND_MS
    check_every_ms: int = CHECK_EVERY_MS
    burn_in_s: int = BURN_IN_S
    returns: frozenset[Fault] = frozenset({Fault.LOST})


CARE: Final = Care()

# Words in the reasons that a monitor, a controller or a person gives.
_SIGNS: Final = (
    ("corrupt", Fault.CORRUPT),
    ("fingerprint", Fault.CORRUPT),
    ("lost", Fault.LOST),
    ("silent", Fault.LOST),
    ("partition", Fault.LOST),
    ("straggl", Fault.SLOW),
    ("slow", Fault.SLOW),
    ("drained", Fault.SLOW),
)


def fault_of(reason: str, incident_id: str, job_id: str) -> Fault:
    """Return what a cordon says of the host; a person's word, without incident or job, nothing.

    A drain without an incident is a person's as well.
    """
    if not incident_id and (not job_id or reason == "drained"):
        return Fault.NONE
    return next((fault for word, fault in _SIGNS if word in reason.lower()), Fault.UNSOUND)


def relapses_at(host: Host, at_ms: int, care: Care) -> int:
    """Return how many of a host's failures still count: one less for each sound stretch."""
    if host.cordon is not None:
        return host.relapses  # out of service, nothing is forgiven
    forgiven = max(at_ms - max(host.joined_ms, host.uncordoned_ms), 0) // care.sound_ms
    return max(host.relapses - forgiven, 0)


def hold_ms(relapses: int, care: Care) -> int:
    """Return how long a host stays out at its n-th relapse: twice as long each time."""
    return min(care.hold_ms << max(relapses - 1, 0), care.hold_ms_max)


def cordoned(
    host: Host,
    *,
    reason: str,
    incident_id: str,
    at_ms: int,
    care: Care,
    job_id: str = "",
    generation: int = 0,
    fault: Fault | None = None,
) -> HostCordoned:
    """Take a host out of service, and say how it is to come back.

    Args:
        host: as it is.
        reason: for people, and what ``fault`` follows from unless it is told.
        incident_id: "" for none.
        at_ms: now.
        care: the limits.
        job_id: of the placement that lost it.
        generation: of that placement.
        fault: what was wrong with it.
    """
    found = fault_of(reason, incident_id, job_id) if fault is None else fault
    relapses = relapses_at(host, at_ms, care)
    held, returns, by_a_person = 0, False, found is Fault.NONE
    if not by_a_person:
        relapses = min(relapses + 1, RELAPSES_COUNTED_MAX)
        held, returns = hold_ms(relapses, care), found in care.returns
    elif host.cordon is not None:
        found = Fault(host.cordon.fault)  # a person's word on one that was on its way back
    wish = host.maintenance
    if wish is not None:
        reason = wish.reason if by_a_person or reason == "drained" else reason
        held = max(held, wish.until_ms - at_ms)
        returns = wish.until_ms > 0 and (returns or by_a_person)
    return HostCordoned(
        host_id=host.host_id,
        reason=reason,
        incident_id=incident_id,
        at_ms=at_ms,
        job_id=job_id,
        generation=generation,
        fault=found,
        relapses=relapses,
        held_ms=held,
        returns=returns,
        maintenance=wish is not None,
    )


def way_back(host: Host) -> Depth:
    """Return what a cordoned host has to pass: a burn-in after a fault of its own."""
    assert host.cordon is not None, f"{host.host_id} is not cordoned"
    return Depth.BURN_IN if host.cordon.fault else Depth.QUICK


def may_return(host: Host, at_ms: int, heard_ms: int = 0) -> bool:
    """Whether a host may try to come back by itself now.

    One that was lost has to have come up again, or to be heard again: as long as nothing has
    changed there, nothing says that it is better.

    Args:
        host: as it is.
        at_ms: now.
        heard_ms: when it was heard last [ms since epoch]; 0: not known.
    """
    cordon = host.cordon
    if cordon is None or not (host.present and host.probes and cordon.returns):
        return False
    heard = heard_ms > cordon.at_ms and at_ms - heard_ms <= HEARD_MS
    better = cordon.rejoined or heard or cordon.fault != Fault.LOST
    return better and not host.awaits and at_ms >= cordon.at_ms + cordon.held_ms


def enough(report: ProbeReport, awaited: Depth | None) -> bool:
    """Whether an examination was as thorough as it had to be."""
    return awaited is not Depth.BURN_IN or report.depth is Depth.BURN_IN


def verdict_of(report: ProbeReport, doubts: Sequence[str]) -> str:
    """Say why a host must not work; "" when nothing, or only a link with one partner, is wrong."""
    own = report.failed(pair=False)
    if own:
        return in_words(own)
    pair = report.failed(pair=True)
    return in_words(pair) if pair and len(doubts) + 1 >= DOUBTS_MAX else ""
