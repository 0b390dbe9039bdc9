"""Holds what was done against what the control plane said of it. Pure.

An incident belongs to the newest fault before it that it answers rightly; else to the newest fault
before it that has none yet; else it is an echo of the newest fault before it that can
have led to it. A fault that must come to nothing is answered rightly by no incident.

What none of them can have led to is a false alarm, which makes the run wrong, but no answer:
what comes before any fault, and what accuses hosts to which nothing was done, when it is either a
finding of the kind that no recovery brings about (a straggler is measured over many sound steps) or
comes after everything that was done has been put right. Faults of services and of all ranks meet
every host, so nothing is told apart from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from everstep.chaos.kinds import Blamed, Right

# The monitor's clock and the supervisor's are one, but a fault is noted just before or behind it.
EARLY_MS_MAX: Final = 200
_MEASURED: Final = frozenset({"straggler"})
_EVICTING: Final = frozenset({"REPLACE", "REPLACE_IF_SPARE", "DRAIN"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A fault that struck.

    Args:
        number: in the campaign.
        kind: its name.
        right: what counts as right.
        at_ms: when.
        rank: whom it met; -1: none.
        hosts: where; () for services and the whole job.
        details: what else is known of it.
    """

    number: int
    kind: str
    right: Right
    at_ms: int
    rank: int = -1
    hosts: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A fault and what followed."""

    done: Done
    incident: Mapping[str, Any] | None
    echoes: tuple[Mapping[str, Any], ...]
    right: bool
    why: str  # not right; "" when it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """All faults, and the incidents that none of them explains."""

    faults: tuple[Matched, ...]
    false_alarms: tuple[Mapping[str, Any], ...]


def match(
    done: Sequence[Done],
    incidents: Sequence[Mapping[str, Any]],
    refused: Sequence[Mapping[str, Any]] = (),
) -> Matching:
    """Say which incident belongs to which fault, and what is right.

    Args:
        done: the faults that struck.
        incidents: of the job, as the monitor tells them.
        refused: copies of the state that could not be used, as the monitor tells them.
    """
    ordered = sorted(done, key=lambda one: (one.at_ms, one.number))
    answers: dict[int, Mapping[str, Any]] = {}
    echoes: dict[int, list[Mapping[str, Any]]] = {one.number: [] for one in ordered}
    false_alarms = []
    for incident in sorted(incidents, key=lambda one: (one["detected_at_ms"], one["incident_id"])):
        seen_ms = incident["detected_at_ms"] + EARLY_MS_MAX
        before = [one for one in ordered if one.at_ms <= seen_ms]
        free = [one for one in before if one.number not in answers]
        fitting = [one for one in free if not _wrong_with(one, incident)]
        expecting = [one for one in free if one.right.incidents]
        if not before or _stands_alone(incident, before, free, answers):
            false_alarms.append(incident)
        elif fitting or expecting:
            answers[(fitting or expecting)[-1].number] = incident
        else:
            echoes[_source(incident, before).number].append(incident)
    return Matching(
        faults=tuple(
            _judged(one, answers.get(one.number), echoes[one.number], refused) for one in ordered
        ),
        false_alarms=tuple(false_alarms),
    )


def _stands_alone(
    incident: Mapping[str, Any],
    before: Sequence[Done],
    free: Sequence[Done],
    answers: Mapping[int, Mapping[str, Any]],
) -> bool:
    """Whether an incident plainly comes of nothing that was done before it."""
    if not incident["hosts"] or any(_may_concern(one, incident) for one in before):
        return False
    if any(incident["kind"] in one.right.incidents for one in free):
        return False  # what was to be found is found, of the wrong host
    return incident["kind"] in _MEASURED or all(
        _put_right(answers.get(one.number), incident["detected_at_ms"]) for one in before
    )


def _may_concern(done: Done, incident: Mapping[str, Any]) -> bool:
    return not done.hosts or not set(done.hosts).isdisjoint(incident["hosts"])


def _put_right(answer: Mapping[str, Any] | None, by_ms: int) -> bool:
    recovered_ms = answer.get("recovered_at_ms") if answer is not None else None
    return recovered_ms is not None and recovered_ms < by_ms


def _source(incident: Mapping[str, Any], before: Sequence[Done]) -> Done:
    """Return the newest fault that an echo can come of."""
    concerned = [one for one in before if _may_concern(one, incident)]
    return (concerned or before)[-1]


def _judged(
    done: Done,
    incident: Mapping[str, Any] | None,
    echoes: Sequence[Mapping[str, Any]],
    refused: Sequence[Mapping[str, Any]],
) -> Matched:
    if done.right.blamed is Blamed.NO_INCIDENT:
        found = [one for one in (incident, *echoes) if one is not None]
        why = f"nothing should happen, but {found[0]['kind']} was found" if found else ""
    elif incident is None:
        why = f"no incident; expected {' or '.join(done.right.incidents)}"
    else:
        why = _wrong_with(done, incident)
    innocent = sorted(_taken_out(echoes) - set(done.hosts))
    if not why and innocent:
        why = f"hosts {innocent} were taken out too, which nothing was done to"
    if not why and done.right.named_later and not _named_later(done, echoes):
        why = "nothing told later who of those it was"
    if not why and done.right.refused and not _refused(done, refused):
        why = "the damaged copy was not refused"
    return Matched(done=done, incident=incident, echoes=tuple(echoes), right=not why, why=why)


def _wrong_with(done: Done, incident: Mapping[str, Any]) -> str:
    """Say what is wrong with an answer; "" if it is right."""
    right = done.right
    kind, ranks, hosts = incident["kind"], set(incident["ranks"]), set(incident["hosts"])
    if kind not in right.incidents:
        return f"{kind} instead of {' or '.join(right.incidents) or 'nothing'}"
    match right.blamed:
        case Blamed.RANK if ranks != {done.rank}:
            return f"ranks {sorted(ranks)} are named instead of {done.rank}"
        case Blamed.RANK if not hosts <= set(done.hosts):
            return f"hosts {sorted(hosts)} are named instead of {', '.join(done.hosts)}"
        case Blamed.AMONG if done.rank not in ranks or not set(done.hosts) <= hosts:
            return f"ranks {sorted(ranks)} are named, and {done.rank} is not among them"
        case Blamed.AMONG if incident["action"] in _EVICTING:
            return f"{incident['action']}, although nothing tells who of them it was"
        case Blamed.HOST if not hosts or not hosts <= set(done.hosts):
            return f"hosts {sorted(hosts)} are named instead of {', '.join(done.hosts)}"
        case Blamed.NOBODY if hosts:
            return f"hosts {sorted(hosts)} are named, but none is to blame"
        case _:
            return ""


def _named_later(done: Done, echoes: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        one["kind"] in done.right.incidents
        and one["action"] in _EVICTING
        and tuple(one["hosts"]) == done.hosts
        for one in echoes
    )


def _taken_out(incidents: Sequence[Mapping[str, Any]]) -> set[str]:
    return {host for one in incidents if one["action"] in _EVICTING for host in one["hosts"]}


def _refused(done: Done, refused: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the copy that was damaged was refused: the rank's, or the very object."""
    uri = done.details.get("uri")
    return any(
        one["uri"] == uri if uri else (one["rank"], one["kind"]) == (done.rank, "own_memory")
        for one in refused
    )
