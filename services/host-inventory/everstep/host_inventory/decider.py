"""Decides what becomes of a command to the fleet.

A host belongs to at most one job, whole; a command that is already true decides nothing. Where
ranks go is in ``policy``; here is whether a job may be placed at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, assert_never

from everstep.core.decision import Accepted, Rejected
from everstep.core.ids import is_valid_id
from everstep.host_inventory import returning
from everstep.host_inventory.care import CARE, Care, Fault, cordoned, fault_of
from everstep.host_inventory.commands import (
    Command,
    CordonHost,
    CountErrors,
    JoinHost,
    JoinHosts,
    LeaveHost,
    MaintainHost,
    PlaceJob,
    RecordProbes,
    ReleaseJob,
    ReturnHost,
    UncordonHost,
)
from everstep.host_inventory.events import (
    Event,
    HostCordoned,
    HostErrorsCounted,
    HostJoined,
    HostLeft,
    JobPlaced,
    JobReleased,
)
from everstep.host_inventory.policy import Answer, new_hosts, place, why_bad_layout
from everstep.host_inventory.returning import Decision, unknown_host
from everstep.host_inventory.seats import HostsShort, NeverFits, Placed
from everstep.host_inventory.state import Fleet, Host, Job, evolve

# Heartbeats come every second: five in a row are not lost by accident, so an agent that was heard
# within this time lives, and a second machine that claims its id is a mistake in the settings.
HEARD_RECENTLY_MS: Final = 5_000
# Agents give an unanswered join up after 2 s and date it by their host's clock: one that is older
# than this is not late, its clock was set back since.
LATE_MS_MAX: Final = 10_000


def decide(command: Command, fleet: Fleet, care: Care = CARE) -> Decision:
    """Decide on the fleet as it is.

    Args:
        command: what is asked.
        fleet: as it is.
        care: how hosts that failed are held out and come back.

    Returns:
        The events that follow, none if it is so already; or ``Rejected`` with a stable code.
    """
    match command:
        case JoinHost():
            return _join(command, fleet)
        case JoinHosts():
            return _join_all(command, fleet)
        case LeaveHost():
            return _leave(command, fleet)
        case CordonHost():
            return _cordon(command, fleet, care)
        case UncordonHost() | MaintainHost() | ReturnHost() | RecordProbes():
            return returning.decide(command, fleet, care)
        case CountErrors():
            return _count(command, fleet)
        case PlaceJob():
            return _place(command, fleet, care)
        case ReleaseJob():
            return _release(command, fleet, care)
        case _:
            assert_never(command)


def _join(command: JoinHost, fleet: Fleet) -> Decision:
    if not is_valid_id(command.host_id):
        return Rejected("bad_host_id", f"{command.host_id!r} is no id: letters, digits, _ and -")
    if command.chips < 1:
        return Rejected(
            "bad_chips", f"host {command.host_id} has {command.chips} chips, expected 1 or more"
        )
    if not command.address:
        return Rejected("bad_address", f"host {command.host_id} has no address: set ADDRESS")
    host = fleet.hosts.get(command.host_id)
    joined = HostJoined(
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
    if host is None:
        return Accepted((joined,))
    if host.present and _same_facts(host, command):
        return Accepted()
    if 0 < host.joined_ms - command.at_ms <= LATE_MS_MAX:
        return Rejected(
            "stale_join",
            f"host {command.host_id} has joined later, at {host.joined_ms} ms, than this join of "
            f"{command.at_ms} ms: send the facts again with the present time",
        )
    return _twin(command, host) or Accepted((joined,))


def _join_all(command: JoinHosts, fleet: Fleet) -> Decision:
    events: list[Event] = []
    # What others say decides nothing about a host: only one that is named twice meets itself.
    named_twice = len({join.host_id for join in command.joins}) < len(command.joins)
    for join in command.joins:
        decision = _join(join, fleet)
        if isinstance(decision, Accepted):
            fleet = reduce(evolve, decision.events, fleet) if named_twice else fleet
            events += decision.events
    return Accepted(tuple(events))


def _twin(command: JoinHost, host: Host) -> Rejected | None:
    """Refuse a second machine under the id of one that works and lives."""
    other = command.address != host.address and command.agent_epoch != host.agent_epoch
    joined_ms = host.joined_ms if host.joined_ms <= command.at_ms else 0  # by another clock
    silent_ms = command.at_ms - max(command.heard_ms, joined_ms)
    if not (other and host.job_id and silent_ms <= HEARD_RECENTLY_MS):
        return None
    return Rejected(
        "host_id_in_use",
        f"host {host.host_id} serves job {host.job_id} from {host.address} and was heard "
        f"{silent_ms} ms ago; {command.address} joined under the same id: give it another id, or "
        f"wait until the old one has been silent for {HEARD_RECENTLY_MS} ms",
    )


def _same_facts(host: Host, command: JoinHost) -> bool:
    names = ("pod", "power", "chips", "address", "peer_port", "agent_epoch", "probes")
    return all(getattr(host, name) == getattr(command, name) for name in names)


def _leave(command: LeaveHost, fleet: Fleet) -> Decision:
    host = fleet.hosts.get(command.host_id)
    if host is None or not host.present:
        return Accepted()
    if host.job_id:
        return Rejected(
            "host_in_use",
            f"host {host.host_id} serves job {host.job_id}: stop the job first, or cordon the host "
            "and restart the job",
        )
    return Accepted((HostLeft(host_id=host.host_id, at_ms=command.at_ms),))


def _cordon(command: CordonHost, fleet: Fleet, care: Care) -> Decision:
    host = fleet.hosts.get(command.host_id)
    if host is None:
        return unknown_host(command.host_id)
    out = host.cordon is not None and host.awaits is None
    known_incident = bool(command.incident_id) and command.incident_id in host.incidents
    # Whoever has left is silent as it should be; what else is wrong with it stays wrong.
    fault = fault_of(command.reason, command.incident_id, command.job_id)
    missed = fault is Fault.LOST and not host.present
    if out or known_incident or missed or command.at_ms < host.uncordoned_ms:
        return Accepted()
    cordon = cordoned(
        host,
        reason=command.reason or "unspecified",
        incident_id=command.incident_id,
        at_ms=command.at_ms,
        care=care,
        job_id=command.job_id,
    )
    return Accepted((cordon,))


def _count(command: CountErrors, fleet: Fleet) -> Decision:
    host = fleet.hosts.get(command.host_id)
    if host is None:
        return unknown_host(command.host_id)
    if command.count < 1 or not command.kind:
        return Rejected(
            "bad_count", f"{command.count} errors of kind {command.kind!r}: expected 1 or more"
        )
    if any(e.kind == command.kind and command.at_ms in e.reports_ms for e in host.errors):
        return Accepted()
    return Accepted(
        (
            HostErrorsCounted(
                host_id=host.host_id,
                kind=command.kind,
                count=command.count,
                at_ms=command.at_ms,
            ),
        )
    )


def _release(command: ReleaseJob, fleet: Fleet, care: Care) -> Decision:
    if not is_valid_id(command.job_id):
        return Rejected("bad_job_id", f"{command.job_id!r} is no id: letters, digits, _ and -")
    job = fleet.jobs.get(command.job_id)
    known = job.generation if job else 0
    newer_runs = job is not None and job.held and 0 < command.generation < known
    over = (job is None or not job.held) and command.generation <= known
    if newer_runs or over:
        return Accepted()
    released = JobReleased(
        job_id=command.job_id, generation=max(command.generation, known), at_ms=command.at_ms
    )
    wanted = returning.freed(command.job_id, (), command.at_ms, fleet, care)
    return Accepted((*wanted, released))


def _place(command: PlaceJob, fleet: Fleet, care: Care) -> Decision:
    job = fleet.jobs.get(command.job_id)
    refused = _why_not_placed(command, fleet, job)
    if refused is not None:
        return refused
    if job is not None and job.generation == command.generation:
        return Accepted()
    cordons, fleet, answer = _best_placement(command, fleet, care)
    match answer:
        case NeverFits():
            return Rejected("does_not_fit", answer.detail)
        case HostsShort():
            return Accepted(cordons)
        case Placed():
            placed = JobPlaced(
                job_id=command.job_id,
                generation=command.generation,
                placement=answer.placement,
                replacements=new_hosts(job, answer.placement),
                at_ms=command.at_ms,
            )
            staying = answer.placement.host_set
            wanted = returning.freed(command.job_id, staying, command.at_ms, fleet, care)
            return Accepted((*cordons, *wanted, placed))
        case _:
            assert_never(answer)


def _best_placement(
    command: PlaceJob, fleet: Fleet, care: Care
) -> tuple[tuple[HostCordoned, ...], Fleet, Answer]:
    """Place without the lost hosts and without as many of the unsound ones as spares allow.

    A job stays on unsound hosts rather than shrink. The fleet is as it is after the cordons.
    """
    lost = _cordons(command, command.lost_hosts, command.reason or "host_lost", fleet, care)
    fleet = reduce(evolve, lost, fleet)
    unsound = sorted(set(command.unsound_hosts) - set(command.lost_hosts))
    why = command.unsound_reason or "unsound"
    for layout in command.layouts:
        for count in range(len(unsound), 0, -1):
            swapped = _cordons(command, unsound[:count], why, fleet, care)
            without = reduce(evolve, swapped, fleet)
            answer = place(command.job_id, layout, without, command.turn)
            if isinstance(answer, Placed):
                return (*lost, *swapped), without, answer
        answer = place(command.job_id, layout, fleet, command.turn)
        if isinstance(answer, Placed):
            return lost, fleet, answer
    return lost, fleet, answer  # of the smallest one: what is missing for that


def _why_not_placed(command: PlaceJob, fleet: Fleet, job: Job | None) -> Rejected | None:
    if not is_valid_id(command.job_id):
        return Rejected("bad_job_id", f"{command.job_id!r} is no id: letters, digits, _ and -")
    if command.generation < 1:
        return Rejected("bad_generation", f"generation {command.generation}: they start at 1")
    bad_layout = next(filter(None, map(why_bad_layout, command.layouts)), "")
    if bad_layout:
        return Rejected("bad_layout", bad_layout)
    if job is not None and (
        command.generation < job.generation
        or (command.generation == job.generation and not job.held)
    ):
        return Rejected(
            "stale_generation",
            f"job {job.job_id} is at generation {job.generation}"
            f"{'' if job.held else ', which is over'}; {command.generation} was asked for",
        )
    if job is not None and job.placement is not None and job.generation == command.generation:
        return None
    return _why_not_lost(command, fleet)


def _why_not_lost(command: PlaceJob, fleet: Fleet) -> Rejected | None:
    for host_id in sorted({*command.lost_hosts, *command.unsound_hosts}):
        host = fleet.hosts.get(host_id)
        if host is None:
            return unknown_host(host_id)
        if host.job_id not in ("", command.job_id):
            return Rejected(
                "host_of_other_job",
                f"host {host_id} is named as lost by job {command.job_id} but serves job "
                f"{host.job_id}",
            )
    return None


def _cordons(
    command: PlaceJob, hosts: Sequence[str], reason: str, fleet: Fleet, care: Care
) -> tuple[HostCordoned, ...]:
    """Cordon each host once a generation: who was uncordoned since may serve again."""
    return tuple(
        cordoned(
            fleet.hosts[host_id],
            reason=reason,
            incident_id=command.incident_id,
            at_ms=command.at_ms,
            care=care,
            job_id=command.job_id,
            generation=command.generation,
        )
        for host_id in sorted(set(hosts))
        if fleet.hosts[host_id].cordon is None
        and fleet.hosts[host_id].lost_by != (command.job_id, command.generation)
    )
