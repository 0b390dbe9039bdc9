"""``stragglers``: who was slow in a recorded run."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from everstep.cli.options import JsonFlag, register
from everstep.cli.output import OUT, print_json, print_table, ranges

if TYPE_CHECKING:
    from everstep.monitor.detectors.straggler import Finding, Judgement
    from everstep.planner.recorded_steps import RecordedSteps

SLOWEST: Final = 3  # shown of each stage


def stragglers(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="A Parquet file with a row for each operation."),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Look for slow ranks in a recorded run.

    Each rank's forward and backward compute is compared with the median of the others of its
    pipeline stage, step by step; whoever is slower for a whole window of steps is named. The same
    rule judges live runs. Columns: rank, stage, step, optype, duration.

    Examples:
      everstep stragglers trace-AR.parquet
      everstep stragglers trace-ST.parquet --json
    """
    from everstep.monitor.detectors.straggler import Limits
    from everstep.planner.recorded_steps import judgements, read_trace

    recorded = read_trace(trace)
    judged = list(judgements(recorded, Limits()))
    if as_json:
        print_json(_document(recorded, judged))
    else:
        _report(trace, recorded, judged)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    register(app, stragglers)


def _document(recorded: RecordedSteps, judged: list[Judgement]) -> dict[str, Any]:
    return {
        "steps": len(recorded.own),
        "ranks": len(recorded.stages),
        "windows": len(judged),
        "stragglers": [
            {
                "ranks": list(finding.ranks),
                "ratio": round(finding.ratio, 4),
                "next_ratio": round(finding.next_ratio, 4),
                "first_step": finding.first_step,
                "last_step": finding.last_step,
                "reason": finding.reason,
            }
            for finding in _findings(judged)
        ],
        "doubts": [
            {
                "why": doubt.why,
                "ranks": list(doubt.ranks),
                "ratio": round(doubt.ratio, 4),
                "reason": doubt.reason,
            }
            for doubt in judged[-1].doubts
        ],
        "ratios": {str(rank): round(ratio, 4) for rank, ratio in _ratios(recorded, judged)},
    }


def _report(trace: Path, recorded: RecordedSteps, judged: list[Judgement]) -> None:
    OUT.print(
        f"{trace.name}: {len(recorded.own)} steps of {len(recorded.stages)} ranks in "
        f"{len(set(recorded.stages.values()))} stages",
        markup=False,
    )
    by_stage: dict[str, list[tuple[int, float]]] = {}
    for rank, ratio in _ratios(recorded, judged):
        by_stage.setdefault(recorded.stages[rank], []).append((rank, ratio))
    rows = []
    for stage, told in by_stage.items():
        slowest = sorted(told, key=lambda one: (-one[1], one[0]))[:SLOWEST]
        shown = ", ".join(f"{rank}: {ratio:.3f}" for rank, ratio in slowest)
        rows.append((stage, ranges([rank for rank, _ in told]), shown))
    print_table(("STAGE", "RANKS", "SLOWEST (TO THE MEDIAN)"), rows, empty="no rank was recorded")
    findings = _findings(judged)
    reasons = [one.reason for one in findings] + [one.reason for one in judged[-1].doubts]
    for reason in reasons:
        OUT.print(reason, markup=False)
    if not findings:
        OUT.print("no straggler")


def _findings(judged: list[Judgement]) -> list[Finding]:
    """Return each rank group's finding from the first window that named it."""
    seen: dict[tuple[int, ...], Finding] = {}
    for judgement in judged:
        for finding in judgement.findings:
            seen.setdefault(finding.ranks, finding)
    return list(seen.values())


def _ratios(recorded: RecordedSteps, judged: list[Judgement]) -> list[tuple[int, float]]:
    """Return the median of each rank's windows, for those that have peers."""
    found = []
    for rank in recorded.stages:
        known = [one.ratios[rank] for one in judged if not math.isnan(one.ratios[rank])]
        if known:
            found.append((rank, median(known)))
    return found
