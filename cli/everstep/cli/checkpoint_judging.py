"""``checkpoints``, continued: pins, what a state is worth, and what would be restored now."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from everstep.cli.options import JobId, JsonFlag, plain_name, register, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table, ranges

INT64_MAX: Final = 2**63 - 1  # a step is an int64, on the wire and in the tables
NEWEST: Final = -1

StepNumber = Annotated[
    int, typer.Argument(metavar="STEP", min=0, max=INT64_MAX, help="Of the checkpoint.")
]
Generation = Annotated[
    int | None,
    typer.Option(min=1, max=INT64_MAX, help="That made it; the newest one's if not given."),
]
Why = Annotated[str, typer.Option("--why", help="For those who ask later.")]


class Trust(StrEnum):
    """What a checkpoint is worth."""

    CLEAN = "clean"
    SUSPECT = "suspect"
    VERIFIED = "verified"


def pin(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    note: Annotated[str, typer.Option("--note", help="What it is kept for.")] = "",
    generation: Generation = None,
) -> None:
    """Keep a checkpoint until it is unpinned.

    Example:
      everstep checkpoints pin demo-4f21ac 60 --note "for the paper"
    """
    which = (job, step, generation)
    with session_of(context).client() as client:
        client.judge("PUT", which, "pin", {"note": note, "by": me()})
    OUT.print(f"the checkpoint of step {step} of job {job} is pinned", markup=False)


def unpin(
    context: typer.Context, job: JobId, step: StepNumber, generation: Generation = None
) -> None:
    """Let a pinned checkpoint be deleted when its time comes.

    Example:
      everstep checkpoints unpin demo-4f21ac 60
    """
    with session_of(context).client() as client:
        client.judge("DELETE", (job, step, generation), "pin", by=me())
    OUT.print(f"the checkpoint of step {step} of job {job} is not pinned", markup=False)


def trust(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    word: Annotated[Trust, typer.Argument(metavar="TRUST", help="clean, suspect, or verified.")],
    why: Why = "",
    generation: Generation = None,
) -> None:
    """Say what a checkpoint is worth.

    A restart never takes a suspect one. clean holds against what was suspected before, verified
    also against what is suspected later.

    Example:
      everstep checkpoints trust demo-4f21ac 60 clean --why "the loss is as before"
    """
    body = {"trust": word.value, "why": why, "by": me()}
    with session_of(context).client() as client:
        client.judge("POST", (job, step, generation), "trust", body)
    OUT.print(f"the checkpoint of step {step} of job {job} is {word.value}", markup=False)


def suspect(
    context: typer.Context,
    job: JobId,
    from_step: Annotated[
        int, typer.Option("--from-step", min=0, max=INT64_MAX, help="The first that may be bad.")
    ],
    to_step: Annotated[
        int,
        typer.Option("--to-step", min=NEWEST, max=INT64_MAX, help="The last; -1: whatever comes."),
    ] = NEWEST,
    why: Why = "",
) -> None:
    """Restore nothing of some steps.

    Neither from memory nor from the object store, until somebody says otherwise.

    Example:
      everstep checkpoints suspect demo-4f21ac --from-step 55 --why "wrong learning rate"
    """
    body = {"from_step": from_step, "to_step": to_step, "why": why, "by": me()}
    with session_of(context).client() as client:
        found = client.suspect(job, body)
        left = client.restore_plan(job, NEWEST)
    _print_suspicions(found)
    if not left["restorable"]:
        ERR.print(
            f"nothing that may be restored is left now: after the next failure the job waits for "
            f"`everstep checkpoints trust {job} STEP clean` or `everstep checkpoints resolve {job} "
            "ID --false-alarm`",
            markup=False,
        )


def suspicions(context: typer.Context, job: JobId, as_json: JsonFlag = False) -> None:
    """List what is suspected of a job's steps.

    Example:
      everstep checkpoints suspicions demo-4f21ac
    """
    with session_of(context).client() as client:
        found = client.suspicions(job)
        if not found:
            client.job(job)  # says so if there is no such job
    if as_json:
        print_json(found)
    else:
        _print_suspicions(found)


def resolve(
    context: typer.Context,
    job: JobId,
    suspicion: Annotated[
        str,
        typer.Argument(
            metavar="ID", callback=plain_name, help="`everstep checkpoints suspicions` lists them."
        ),
    ],
    false_alarm: Annotated[
        bool, typer.Option("--false-alarm", help="Nothing was bad: all its steps are clean.")
    ] = False,
    why: Why = "",
) -> None:
    """Say that a suspicion is dealt with.

    Its steps stay suspect, unless it was a false alarm; what was kept to go back before them need
    not be kept any more.

    Example:
      everstep checkpoints resolve demo-4f21ac by_hand-1-55 --false-alarm
    """
    body = {"false_alarm": false_alarm, "why": why, "by": me()}
    with session_of(context).client() as client:
        client.end_suspicion(job, suspicion, body)
    OUT.print(f"suspicion {suspicion} of job {job} is resolved", markup=False)


def plan(
    context: typer.Context,
    job: JobId,
    from_step: Annotated[
        int,
        typer.Option(
            "--from-step", min=NEWEST, max=INT64_MAX, help="Restore this step; -1: the newest."
        ),
    ] = NEWEST,
    as_json: JsonFlag = False,
) -> None:
    """Say what a restart would restore now, and why.

    As far as the registry knows: from what the hosts told with their newest step. Nothing is done.
    Exit code 1 if nothing can be restored.

    Example:
      everstep checkpoints plan demo-4f21ac
    """
    with session_of(context).client() as client:
        found = client.restore_plan(job, from_step)
    if as_json:
        print_json(found)
        raise typer.Exit(0 if found["restorable"] else 1)
    if not found["restorable"]:
        OUT.print(f"nothing can be restored now: {found['refused']}", markup=False)
        raise typer.Exit(1)
    for line in told(found):
        OUT.print(line, markup=False)


def told(found: dict[str, Any]) -> list[str]:
    """Say a plan in plain words."""
    job, step = found["job_id"], found["step"]
    if step < 0:
        lines = [f"job {job} would begin anew: nothing of it can be restored"]
    else:
        counts = {
            "own memory": found["own_memory"],
            "a peer's memory": found["peer_memory"],
            "the object store": found["object_store"],
        }
        where = ", ".join(f"{count} from {name}" for name, count in counts.items() if count)
        lines = [f"job {job} would go on from step {step}: of {found['world_size']} ranks, {where}"]
        lines += [
            f"  rank {ranges(ranks)}: {', then '.join(sources)}"
            for sources, ranks in _alike(found["ranks"])
        ]
    if found["passed_over"]:
        lines += ["not taken:", *(f"  {why}" for why in found["passed_over"])]
    return lines


def add_to(checkpoints_app: typer.Typer) -> None:
    """Add the commands."""
    for command in (plan, pin, unpin, trust, suspect, suspicions, resolve):
        register(checkpoints_app, command)


def _alike(ranks: list[dict[str, Any]]) -> list[tuple[list[str], list[int]]]:
    """Bring together the ranks that would load from the same places, by their first rank."""
    found: dict[tuple[str, ...], list[int]] = {}
    for one in ranks:
        kinds = ("object store" if s.startswith("object ") else s for s in one["sources"])
        found.setdefault(tuple(kinds), []).append(one["rank"])
    return [(list(sources), numbers) for sources, numbers in found.items()]


def _print_suspicions(found: list[dict[str, Any]]) -> None:
    rows = [
        [
            one["suspicion_id"],
            "resolved" if one["resolved"] else "open",
            one["described"],
            one["by"],
        ]
        for one in found
    ]
    print_table(["suspicion", "state", "of", "by"], rows, empty="nothing is suspected")


def me() -> str:
    """Return who asks, for those who read it later."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "a person"
