"""Judges a demo's run and tells it: a dictionary for programs, a page for people. Pure.

Every claim is checked from what the services and the files say, not from what was intended; the
demo has succeeded only if all checks hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from everstep.cli.demo_plan import WORLD_SIZE, DemoPlan
from everstep.cli.output import duration, ranges, share

LOST_STEPS_MAX: Final = 1
STAGES: Final = ("detect", "fence", "place", "plan", "start", "first_step")
BAR_WIDTH: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What was killed, when."""

    host: str
    ranks: tuple[int, ...]
    at_step: int  # newest completed step known at that moment
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished job as the services tell it."""

    job: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]]
    incidents: Sequence[Mapping[str, Any]]
    goodput: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The comparison of the final states."""

    equal: bool
    tensors_compared: int
    run_checksum: str
    reference_checksum: str
    differences: tuple[str, ...] = ()


def make_report(
    *, plan: DemoPlan, kill: Kill | None, run: Run, reference: Run, states: States, wall_s: float
) -> dict[str, Any]:
    """Return the report; ``ok`` is the verdict and ``checks`` say of what it is made."""
    recovery = _recovery(run, kill)
    incident = _incident(run, recovery)
    losses = {str(point["step"]): point["loss"] for point in run.points}
    report: dict[str, Any] = {
        "seed": plan.seed,
        "steps": plan.steps,
        "killed_host": kill.host if kill is not None else None,
        "killed_ranks": list(kill.ranks) if kill is not None else [],
        "killed_at_step": kill.at_step if kill is not None else None,
        "replacements": list(recovery["replacements"]) if recovery else [],
        "restored_from_step": recovery["restore_step"] if recovery else None,
        "restore_sources": dict(recovery["sources"]) if recovery else {},
        "detection_ms": _since_kill(kill, incident["detected_at_ms"] if incident else None),
        "recovery_ms": _since_kill(kill, _next_new_step_ms(run, recovery, incident)),
        "recovery_stages_ms": _stages(kill, incident, recovery),
        "lost_steps": incident["lost_steps"] if incident else None,
        "incident": dict(incident) if incident else None,
        "goodput": {**run.goodput["causes"], "wall_ms": run.goodput["wall_ms"]},
        "state_equal": states.equal,
        "tensors_compared": states.tensors_compared,
        "run_checksum": states.run_checksum,
        "reference_checksum": states.reference_checksum,
        "differences": list(states.differences[:20]),
        "losses_equal": losses == {str(p["step"]): p["loss"] for p in reference.points},
        "losses": losses,
        "jobs": {"run": run.job["job_id"], "reference": reference.job["job_id"]},
        "wall_s": round(wall_s, 1),
    }
    report["checks"] = _checks(report, run, reference)
    report["ok"] = all(report["checks"].values())
    return report


def _checks(report: Mapping[str, Any], run: Run, reference: Run) -> dict[str, bool]:
    final_hosts = {host["host_id"] for host in (run.job["placement"] or {}).get("hosts", [])}
    sources = report["restore_sources"]
    in_memory = sources.get("own_memory", 0) + sources.get("peer_memory", 0)
    lost = report["lost_steps"]
    return {
        "the disturbed run succeeded": run.job["phase"] == "succeeded",
        "the undisturbed run succeeded": reference.job["phase"] == "succeeded",
        "a host was killed": report["killed_host"] is not None,
        "one incident, for exactly that host": len(run.incidents) == 1
        and list(run.incidents[0]["hosts"]) == [report["killed_host"]],
        "a spare took over": len(report["replacements"]) == 1
        and set(report["replacements"]) <= final_hosts
        and report["killed_host"] not in final_hosts,
        "state came from memory alone": in_memory == WORLD_SIZE
        and sources.get("object_store", 0) == 0,
        "at most one step was lost": lost is not None and 0 <= lost <= LOST_STEPS_MAX,
        "every step has a loss": len(report["losses"]) == report["steps"],
        "both loss curves are equal": report["losses_equal"],
        "final states are equal bit for bit": report["state_equal"]
        and report["tensors_compared"] > 0
        and report["run_checksum"] == report["reference_checksum"],
    }


def _recovery(run: Run, kill: Kill | None) -> Mapping[str, Any] | None:
    """Return the newest generation that came after the kill."""
    after = [
        one
        for one in run.job["recoveries"]
        if one["cause"] == "recovery" and kill is not None and one["begun_at_ms"] >= kill.at_ms
    ]
    return after[-1] if after else None


def _incident(run: Run, recovery: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if recovery is None:
        return None
    return next((i for i in run.incidents if i["incident_id"] == recovery["incident_id"]), None)


def _next_new_step_ms(
    run: Run, recovery: Mapping[str, Any] | None, incident: Mapping[str, Any] | None
) -> int | None:
    """Return when the first step that had never been completed before was completed."""
    if recovery is None or incident is None:
        return None
    new = [p for p in run.points if p["step"] > incident["step"]]
    after = [p["completed_at_ms"] for p in new if p["generation"] >= recovery["generation"]]
    return min(after, default=None)


def _stages(
    kill: Kill | None, incident: Mapping[str, Any] | None, recovery: Mapping[str, Any] | None
) -> dict[str, int]:
    if kill is None or incident is None or recovery is None:
        return {}
    stages = {"detect": incident["detected_at_ms"] - kill.at_ms, **recovery["stages_ms"]}
    return {name: stages[name] for name in STAGES if name in stages}


def _since_kill(kill: Kill | None, at_ms: int | None) -> int | None:
    return at_ms - kill.at_ms if kill is not None and at_ms is not None else None


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the page for people."""
    lines = ["", *_what_happened(report)]
    lines.append(f"next new step {duration(report['recovery_ms'])} after the kill:")
    stages = report["recovery_stages_ms"]
    longest = max(stages.values(), default=1) or 1
    for name, spent_ms in stages.items():
        bar = "#" * max(1, round(BAR_WIDTH * spent_ms / longest))
        lines.append(f"  {name:<11}{duration(spent_ms):>8}  {bar}")
    goodput = report["goodput"]
    wall_ms = goodput["wall_ms"]
    lines.append(f"where {duration(wall_ms)} of the disturbed run went:")
    for cause, spent_ms in sorted(goodput.items(), key=lambda item: -item[1]):
        if cause != "wall_ms" and spent_ms:
            lines.append(f"  {cause:<19}{duration(spent_ms):>8}  {share(spent_ms, wall_ms):>7}")
    lines.append("")
    lines += [f"  {'ok  ' if held else 'FAIL'} {name}" for name, held in report["checks"].items()]
    lines += [f"       {difference}" for difference in report["differences"][:5]]
    return [*lines, "", verdict(report)]


def _what_happened(report: Mapping[str, Any]) -> list[str]:
    killed = f"killed host {report['killed_host']} (ranks {ranges(report['killed_ranks'])})"
    heirs = ", ".join(report["replacements"]) or "nobody"
    own, peer, store = (
        report["restore_sources"].get(name, 0)
        for name in ("own_memory", "peer_memory", "object_store")
    )
    restored = f"restored step {report['restored_from_step']}: {own} ranks from their own memory"
    others = f"{peer} from a peer's, {store} from the object store"
    steps = report["lost_steps"]
    lost = f"{steps} step{'' if steps == 1 else 's'} lost"
    return [
        f"{killed} after step {report['killed_at_step']}; {heirs} took over",
        f"{restored}, {others}; {lost}",
    ]


def verdict(report: Mapping[str, Any]) -> str:
    """Return the last line."""
    if report["ok"]:
        return (
            f"{report['tensors_compared']} tensors compared: the run that lost a host ended bit "
            f"for bit equal to the one that did not (xxh3 {report['run_checksum'][:16]})"
        )
    failed = [name for name, held in report["checks"].items() if not held]
    return f"the demo failed: not true that {'; not true that '.join(failed)}"
