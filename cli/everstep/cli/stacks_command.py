"""``jobs stacks``: what the ranks of a job do right now."""

from __future__ import annotations

from typing import Any, Final

import typer

from everstep.cli.options import JobId, JsonFlag, session_of
from everstep.cli.output import OUT, print_json, ranges

FRAMES_MAX: Final = 12  # innermost; further out all ranks look alike


def stacks(context: typer.Context, job_id: JobId, as_json: JsonFlag = False) -> None:
    """Show what a job's ranks do right now.

    Ranks in the same place are one group, the largest first. Takes about a second and disturbs
    nobody. A run that hangs is looked at by the monitor itself: see `everstep incidents`.

    Examples:
      everstep jobs stacks demo-4f21ac
      everstep jobs stacks demo-4f21ac --json
    """
    with session_of(context).client() as client:
        found = client.stacks(job_id)
    if as_json:
        print_json(found)
        return
    for line in stack_lines(found):
        OUT.print(line, markup=False)


def stack_lines(found: dict[str, Any]) -> list[str]:
    """Return the groups as lines, each with its innermost frames."""
    lines = []
    for group in found["groups"]:
        mark = "  <- stands out" if group["stands_out"] else ""
        name = "rank" if len(group["ranks"]) == 1 else "ranks"
        hosts = ", ".join(group["hosts"])
        lines.append(f"{name} {ranges(group['ranks'])} on {hosts}: {group['role']}{mark}")
        lines += [f"    {frame}" for frame in group["frames"][-FRAMES_MAX:]]
    if found["unseen"]:
        lines.append(f"nobody has told of ranks {ranges(found['unseen'])}")
    return lines
