"""``jobs interval``: how often a job snapshots, why, and how to change it while it runs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from everstep.cli.options import JobId, JsonFlag, session_of
from everstep.cli.output import OUT, clock_time, duration, print_json, print_table
from everstep.core.errors import InvalidInput
from everstep.core.spec import EVERY_STEPS_MAX

NAMES: Final = {
    "step": "useful work of a step",
    "memory_stall": "stall of a snapshot into memory",
    "object_stall": "stall of a durable snapshot",
    "upload": "from step to complete checkpoint",
    "mtbf": "mean time between failures",
    "memory_lost_share": "failures that memory does not survive",
    "object_restores": "recoveries from the object store",
}


def interval(
    context: typer.Context,
    job_id: JobId,
    memory_steps: Annotated[
        int | None,
        typer.Option(
            "--memory-steps", min=1, max=EVERY_STEPS_MAX, help="Snapshot into memory every N steps."
        ),
    ] = None,
    object_steps: Annotated[
        int | None,
        typer.Option(
            "--object-steps",
            min=0,
            max=EVERY_STEPS_MAX,
            help="Write a checkpoint every N steps; 0: on request.",
        ),
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Let measurements choose.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say how often a job snapshots and why, or set it.

    With options, the interval changes while the job runs: all ranks change at one of their next
    steps, and so does every later generation.

    Examples:
      everstep jobs interval demo-4f21ac
      everstep jobs interval demo-4f21ac --object-steps 50
      everstep jobs interval demo-4f21ac --auto
    """
    if auto and (memory_steps is not None or object_steps is not None):
        raise InvalidInput("--auto chooses the steps itself: give --auto, or steps")
    with session_of(context).client() as client:
        if auto or memory_steps is not None or object_steps is not None:
            client.set_interval(
                job_id, auto=auto, memory_steps=memory_steps, object_steps=object_steps
            )
        told = client.interval(job_id)
    if as_json:
        print_json(told)
        return
    for line in said(told):
        OUT.print(line, markup=False)
    rows = [_input_row(one) for one in told["inputs"]]
    print_table(["decided on", "", "from", "count"], rows, empty="")
    waste = [
        [cause.replace("_", " "), f"{100 * value:.3g} %"]
        for cause, value in (told["expected_waste"] or {}).items()
    ]
    print_table(["expected to cost", ""], waste, empty="too few steps are measured for a forecast")
    for text in told["would_change"]:
        OUT.print(text, markup=False)
    print_table(
        ["version", "decided", "memory", "object", "reason", "in force"],
        [_history_row(one) for one in told["history"]],
        empty="the job spec's interval has held so far",
    )


def said(told: dict[str, Any]) -> list[str]:
    """Say in a few lines what holds now, since when and by whose choice."""
    schedule, seen, decided = told["schedule"], told["in_force"], told["decided"]
    memory = _every(schedule["memory_every_steps"])
    objects = _every(schedule["object_every_steps"])
    lines = [
        f"memory     {memory}",
        f"object     {objects}",
        f"chosen     {'from measurements' if told['auto'] else 'by hand or spec'}"
        + (f", last for {decided['reason'].replace('_', ' ')}" if decided else ", the spec's own"),
    ]
    if told["pending"]:
        lines.append("in force   not yet: at the ranks' next common step")
    elif seen:
        since = clock_time(seen["at_ms"])
        where = f"step {seen['step']} of generation {seen['generation']}"
        lines.append(f"in force   since {where}, {since}")
    else:
        lines.append("in force   since the first step")
    return lines


def _every(steps: int) -> str:
    if not steps:
        return "on request only"
    return "every step" if steps == 1 else f"every {steps} steps"


def _input_row(one: dict[str, Any]) -> list[Any]:
    value = one["value"]
    if value is None:
        text = "not known"
    elif one["unit"] == "s":
        text = f"{1e3 * value:.3g} ms" if value < 1 else duration(1e3 * value)
    else:
        text = f"{value:.3g}" if one["unit"] == "1" else f"{value} of {one['count']}"
    return [NAMES[one["name"]], text, one["source"], one["count"]]


def _history_row(one: dict[str, Any]) -> list[Any]:
    return [
        one["version"],
        clock_time(one["decided_at_ms"]),
        one["memory_every_steps"],
        one["object_every_steps"],
        one["reason"].replace("_", " "),
        f"step {one['in_force_step']}" if one["in_force_step"] is not None else "not yet",
    ]
