"""Decides how hosts come back: by a person's word, by themselves, and through which probes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter
from typing import assert_never

from everstep.core.decision import Accepted, Rejected
from everstep.core.probes import PAIR, ProbeReport, Verdict
from everstep.host_inventory.care import (
    MAINTENANCE_MS_MAX,
    Care,
    Fault,
    cordoned,
    enough,
    may_return,
    verdict_of,
    way_back,
)
from everstep.host_inventory.commands import (
    MaintainHost,
    RecordProbes,
    ReturnHost,
    UncordonHost,
)
from everstep.host_inventory.events import (
    Event,
    HostCordoned,
    HostProbed,
    HostReturning,
    HostUncordoned,
    MaintenanceEnded,
    MaintenancePlanned,
)
from everstep.host_inventory.state import Fleet, Host, Maintenance

Decision = Accepted[Event] | Rejected
Command = UncordonHost | MaintainHost | ReturnHost | RecordProbes

NOTHING: Accepted[Event] = Accepted()


def decide(command: Command, fleet: Fleet, care: Care) -> Decision:
    """Decide as ``decider.decide`` does, on what brings a host back or takes it away."""
    host = fleet.hosts.get(command.host_id)
    if host is None:
        return unknown_host(command.host_id)
    match command:
        case UncordonHost():
            return _uncordon(command, host)
        case MaintainHost():
            return _maintain(command, host, care)
        case ReturnHost():
            if not may_return(host, command.at_ms, command.heard_ms):
                return NOTHING
            assert host.cordon is not None
            why = f"held out for {host.cordon.held_ms // 1000} s after: {host.cordon.reason}"
            return Accepted((_returning(host, why, command.at_ms),))
        case RecordProbes():
            return _probed(command, host, _standing(host.doubts, fleet), care)
        case _:
            assert_never(command)


def freed(
    job_id: str, staying: Collection[str], at_ms: int, fleet: Fleet, care: Care
) -> tuple[HostCordoned, ...]:
    """Cordon the hosts that a job gives up and a person waits for."""
    given_up = [
        cordoned(
            host,
            reason=host.maintenance.reason,
            incident_id="",
            at_ms=at_ms,
            care=care,
            fault=Fault.NONE,
        )
        for host in fleet.hosts.values()
        if host.maintenance is not None and host.job_id == job_id
        if host.cordon is None and host.host_id not in staying
    ]
    return tuple(sorted(given_up, key=attrgetter("host_id")))


def unknown_host(host_id: str) -> Rejected:
    """Refuse a command to a host that nobody knows."""
    return Rejected(
        "unknown_host", f"no host {host_id!r} has ever joined; `everstep hosts` lists them"
    )


def _uncordon(command: UncordonHost, host: Host) -> Decision:
    if host.cordon is None:
        if host.awaits is not None and command.now:
            return Accepted((HostUncordoned(host_id=host.host_id, at_ms=command.at_ms),))
        if host.maintenance is not None:
            return Accepted((MaintenanceEnded(host_id=host.host_id, at_ms=command.at_ms),))
        return NOTHING
    # Where a job's ranks may run there is nothing to probe, and their work is the better proof.
    serves = bool(host.job_id) and host.cordon.job_id != host.job_id
    if command.now or serves or not host.probes:
        return Accepted((HostUncordoned(host_id=host.host_id, at_ms=command.at_ms),))
    if host.awaits is not None:
        return NOTHING
    return Accepted((_returning(host, "by hand", command.at_ms),))


def _returning(host: Host, why: str, at_ms: int) -> HostReturning:
    return HostReturning(host_id=host.host_id, depth=way_back(host), why=why, at_ms=at_ms)


def _maintain(command: MaintainHost, host: Host, care: Care) -> Decision:
    left_ms = command.until_ms - command.at_ms
    if command.until_ms and not 0 < left_ms <= MAINTENANCE_MS_MAX:
        return Rejected(
            "bad_until",
            f"a maintenance of {host.host_id} until {command.until_ms} ms would end {left_ms} ms "
            f"from now ({command.at_ms} ms): take more than 0 and at most {MAINTENANCE_MS_MAX} ms, "
            "or no end, and it ends when you say so",
        )
    planned = MaintenancePlanned(
        host_id=host.host_id,
        reason=f"maintenance: {command.reason}",
        until_ms=command.until_ms,
        at_ms=command.at_ms,
    )
    wish = host.maintenance
    if wish is not None and (wish.reason, wish.until_ms) == (planned.reason, planned.until_ms):
        return NOTHING
    if host.job_id and host.cordon is None:
        return Accepted((planned,))
    cordon = host.cordon
    same = cordon is not None and cordon.maintenance and host.awaits is None
    if same and cordon is not None and cordon.reason == planned.reason:
        return NOTHING
    wanted = replace(
        host, maintenance=Maintenance(reason=planned.reason, until_ms=planned.until_ms)
    )
    begun = cordoned(
        wanted,
        reason=planned.reason,
        incident_id="",
        at_ms=command.at_ms,
        care=care,
        fault=Fault.NONE,
    )
    return Accepted((begun,))


def _standing(doubts: tuple[str, ...], fleet: Fleet) -> tuple[str, ...]:
    """Return the doubts that stand: a partner that is out by now explains why its link failed."""
    known = ((one, fleet.hosts.get(one)) for one in doubts)
    return tuple(
        one for one, host in known if host is None or (host.present and host.cordon is None)
    )


def _probed(command: RecordProbes, host: Host, doubts: tuple[str, ...], care: Care) -> Decision:
    """Let a host that passed work, and one that failed not.

    What an earlier agent said counts no more: the machine may be another one.
    """
    report, at_ms = command.report, command.at_ms
    out = host.cordon is not None and host.awaits is None
    known = report.examination_id == host.examined
    if known or out or not host.present or command.agent_epoch != host.agent_epoch:
        return NOTHING
    found = HostProbed(host_id=host.host_id, passed=False, report=report, at_ms=at_ms)
    wrong = verdict_of(report, doubts)
    if wrong:
        cordon = cordoned(
            host,
            reason=f"probe failed: {wrong}",
            incident_id="",
            at_ms=at_ms,
            care=care,
            fault=Fault.PROBE,
        )
        return Accepted((found, cordon))
    if report.failed(pair=True):
        return Accepted((found,))
    return _passed(host, report, doubts, at_ms)


def _passed(host: Host, report: ProbeReport, doubts: tuple[str, ...], at_ms: int) -> Decision:
    passed = HostProbed(host_id=host.host_id, passed=True, report=report, at_ms=at_ms)
    certain = not doubts or _tried_a_partner(report)
    if host.awaits is None:
        return Accepted((passed,)) if host.doubts and certain else NOTHING
    if not enough(report, host.awaits) or not certain:
        return NOTHING
    if host.cordon is None:
        return Accepted((passed,))
    return Accepted((passed, HostUncordoned(host_id=host.host_id, at_ms=at_ms)))


def _tried_a_partner(report: ProbeReport) -> bool:
    return any(one.name == PAIR and one.verdict is not Verdict.NOT_RUN for one in report.probes)
