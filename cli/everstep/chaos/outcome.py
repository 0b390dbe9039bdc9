"""Puts truth and outcome of a campaign side by side, for programs and for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from everstep.chaos.campaign import Campaign
from everstep.chaos.kinds import Equal
from everstep.chaos.truth import Matched, Matching
from everstep.cli.output import duration, ranges

VERSION: Final = 1
_SAID: Final = ("incident_id", "kind", "ranks", "hosts", "action", "reason", "step", "lost_steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """How the end states compare; ``equal`` None: they were not compared, ``why`` if asked."""

    equal: bool | None = None
    against: str = ""
    tensors_compared: int = 0
    differences: tuple[str, ...] = ()
    why: str = ""


def wanted_equal(campaign: Campaign) -> Equal:
    """Say what the end state of a campaign's run must be equal to."""
    wanted = {one.kind.right.equal for one in campaign.faults}
    if Equal.NOTHING in wanted:
        return Equal.NOTHING
    return Equal.SKIPPED if Equal.SKIPPED in wanted else Equal.UNDISTURBED


def no_like(campaign: Campaign) -> str:
    """Say why a campaign's run is equal to none that we could make; "": there is one."""
    kinds = dict.fromkeys(
        one.kind.name for one in campaign.faults if one.kind.right.equal is Equal.NOTHING
    )
    return f"after {', '.join(kinds)} no other run ends equal" if kinds else ""


def skipped_of(incidents: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return all positions that were left out, as ranges of a job spec."""
    return sorted([first, end] for one in incidents for first, end in one.get("skipped") or [])


def make_report(
    *,
    campaign: Campaign,
    job: Mapping[str, Any],
    matching: Matching,
    missed: Mapping[int, str],
    problems: Sequence[str],
    ledger: Mapping[str, Any],
    states: States,
) -> dict[str, Any]:
    """Return all of it, with ``ok`` only if nothing is wrong."""
    planned = {one.number: one for one in campaign.faults}
    rows = [_row(one, str(planned[one.done.number]), states) for one in matching.faults]
    rows += [
        {"number": number, "kind": planned[number].kind.name, "planned": str(planned[number]),
         "struck": False, "right": False, "why": why}
        for number, why in missed.items()
    ]  # fmt: skip
    rows.sort(key=lambda row: int(row["number"]))
    sum_ms = sum(ledger["causes"].values())
    sums = sum_ms == ledger["wall_ms"]
    ok = (
        job["phase"] == "succeeded"
        and all(row["right"] for row in rows)
        and not matching.false_alarms
        and states.equal is not False
        and sums
        and not problems
    )
    return {
        "version": VERSION,
        "ok": ok,
        "campaign": {"name": campaign.name, "seed": campaign.seed},
        "job_id": job["job_id"],
        "phase": job["phase"],
        "faults": rows,
        "false_alarms": [_incident(one) for one in matching.false_alarms],
        "state": {
            "equal": states.equal,
            "against": states.against,
            "tensors_compared": states.tensors_compared,
            "differences": list(states.differences[:10]),
            "why_not_compared": states.why,
        },
        "ledger": {"wall_ms": ledger["wall_ms"], "sum_ms": sum_ms, "sums": sums},
        "problems": list(problems),
    }


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the report for a person."""
    lines = [_line(row) for row in report["faults"]]
    lines += [
        f"false alarm: {one['kind']} of hosts {', '.join(one['hosts']) or '-'}: {one['reason']}"
        for one in report["false_alarms"]
    ]
    state = report["state"]
    if state["equal"] is not None:
        same = "equal, bit for bit, to" if state["equal"] else "NOT equal to"
        lines.append(
            f"end state: {same} that of {state['against']} ({state['tensors_compared']} tensors)"
        )
    elif state["why_not_compared"]:
        lines.append(f"end state: compared with nothing: {state['why_not_compared']}")
    if not report["ledger"]["sums"]:
        ledger = report["ledger"]
        lines.append(f"ledger: {ledger['sum_ms']} ms of {ledger['wall_ms']} ms are accounted for")
    lines += report["problems"]
    right = sum(bool(row["right"]) for row in report["faults"])
    verdict = "all is right" if report["ok"] else "not all is right"
    lines.append(f"{right} of {len(report['faults'])} faults answered rightly: {verdict}")
    return lines


def _line(row: Mapping[str, Any]) -> str:
    mark = "right" if row["right"] else "WRONG"
    if not row["struck"]:
        return f"{mark}  {row['planned']}: did not strike: {row['why']}"
    incident = row["incident"]
    said = "no incident"
    if incident is not None:
        found = f"{incident['kind']}, {incident['action']}"
        whom = f"ranks {ranges(incident['ranks'])}" if incident["ranks"] else "no rank"
        said = f"{found}, {whom} on {', '.join(incident['hosts']) or 'no host'}"
        said += f", found after {duration(row['detected_ms'])}"
        if row["recovered_ms"] is not None:
            said += f", put right after {duration(row['recovered_ms'])}"
        said += f", {row['lost_steps']} steps lost"
    why = f" ({row['why']})" if row["why"] else ""
    return f"{mark}  {row['planned']}: {said}{why}"


def _row(matched: Matched, planned: str, states: States) -> dict[str, Any]:
    done, incident = matched.done, matched.incident
    recovered = incident["recovered_at_ms"] if incident is not None else None
    return {
        "number": done.number,
        "kind": done.kind,
        "planned": planned,
        "struck": True,
        "injected_at_ms": done.at_ms,
        "to": {"rank": done.rank if done.rank >= 0 else None, "hosts": list(done.hosts)},
        "details": dict(done.details),
        "incident": _incident(incident) if incident is not None else None,
        "echoes": [_incident(one) for one in matched.echoes],
        "detected_ms": incident["detected_at_ms"] - done.at_ms if incident is not None else None,
        "recovered_ms": recovered - done.at_ms if recovered else None,
        "lost_steps": sum(one["lost_steps"] or 0 for one in (incident, *matched.echoes) if one),
        "right": matched.right,
        "why": matched.why,
        "state_equal": states.equal,
    }


def _incident(incident: Mapping[str, Any]) -> dict[str, Any]:
    return {name: incident[name] for name in _SAID}
