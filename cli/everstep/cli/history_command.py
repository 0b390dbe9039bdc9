"""Histories: ``jobs export`` saves one, ``plan --from-history`` asks what another policy would do.

A history comes from the services, from an exported file, or from exported events; what is done with
it is the planner's (``everstep.planner.replay``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from everstep.cli.client import POINTS_MAX, Client
from everstep.cli.late import Late
from everstep.cli.options import JobId, Session, session_of
from everstep.cli.output import OUT, print_json, print_table
from everstep.core.errors import InvalidInput, NotFoundError
from everstep.core.system import SystemClock
from everstep.planner.history import History, checked
from everstep.planner.history_documents import document_of, read_document
from everstep.planner.history_events import read_events
from everstep.planner.inputs import option
from everstep.planner.replay import replay
from everstep.planner.replay_confidence import saving
from everstep.planner.replay_policy import AS_IT_WAS, Policy
from everstep.planner.replay_summary import (
    Compared,
    replay_json,
    replay_sweep_table,
    replay_tables,
)
from everstep.planner.summary import Table
from everstep.planner.sweep import Axis

STDOUT: Final = "-"
SUFFIXES: Final = (".json", ".jsonl")
POLICY_TIMES: Final = ("interval", "restart", "detection", "repair")

Json = dict[str, Any]


def export(
    context: typer.Context,
    job_id: JobId,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="Where to; - for standard output.")
    ] = "",
) -> None:
    """Save a job's history as one JSON file.

    All that the services know of its course: the job with its restarts, incidents, the times of its
    steps, where the time went, hosts, checkpoints. Variables of the job's environment are left out.
    `everstep plan --from-history FILE` replays it, without a stack.

    Examples:
      everstep jobs export demo-4f21ac
      everstep jobs export demo-4f21ac --out - | jq .goodput
    """
    with Late() as late, session_of(context).client() as client:
        document = _asked(client, job_id, late)
    text = json.dumps(document) + "\n"
    if out == STDOUT:
        sys.stdout.write(text)
        return
    path = Path(out or f"{job_id}.history.json")
    path.write_text(text)
    OUT.print(f"written: {path}; `everstep plan --from-history {path}` replays it", markup=False)


def counterfactual(
    session: Session,
    source: str,
    given: Mapping[str, Any],
    *,
    axes: Sequence[Axis],
    seed: int,
    as_json: bool,
) -> None:
    """Replay a history under another policy and print what that would have saved.

    Args:
        session: where the services are, for a job.
        source: a job, an exported file or exported events.
        given: values of the options, None where one was not given; times in seconds.
        axes: one swept option, or none.
        seed: of the resamples.
        as_json: print values for programs.
    """
    with Late() as late:
        history = checked(_read(session, source, given.get("stall"), late))
        compared = _compared(history, _policy(given), seed, late)
        points = [
            (value, _compared(history, _policy({**given, axis.name: value}), seed, late))
            for axis in axes
            for value in axis.values
        ]
    if as_json:
        swept = [{axes[0].name: value} | _swept_json(one) for value, one in points]
        print_json(replay_json(compared) | ({"sweep": swept} if axes else {}))
        return
    for table in (replay_sweep_table(axes[0], points),) if axes else replay_tables(compared):
        _print(table)


def refuse_options(given: Mapping[str, Any], axes: Sequence[Axis]) -> None:
    """Refuse what says nothing about a run that was.

    Args:
        given: values of all options of ``plan`` but those of any replay, None: not given.
        axes: what is swept.

    Raises:
        InvalidInput: naming the options.
    """
    policies = {*POLICY_TIMES, "spares", "straggler_threshold", "no_spare"}
    strange = [
        option(name)
        for name, value in given.items()
        if value is not None and value is not False and name not in {*policies, "stall"}
    ]
    if strange:
        raise InvalidInput(
            f"{', '.join(strange)} makes no sense with --from-history: the record says what the "
            f"run was; other policies are {', '.join(option(name) for name in sorted(policies))}"
        )
    refuse_twice(given, axes)
    swept = [axis.name for axis in axes]
    if len(swept) > 1 or set(swept) - set(POLICY_TIMES):
        raise InvalidInput(
            f"--sweep with --from-history takes one of {', '.join(POLICY_TIMES)}, got "
            f"{' and '.join(swept)}"
        )


def refuse_twice(given: Mapping[str, Any], axes: Sequence[Axis]) -> None:
    """Refuse an option that is both given and swept: one of them would not count.

    Raises:
        InvalidInput: naming it.
    """
    for axis in axes:
        if given.get(axis.name) is not None:
            name = option(axis.name)
            raise InvalidInput(
                f"{name} is given and swept (--sweep {axis.name}=...): each point of a sweep has "
                "its own value, so leave one of them out"
            )


def _policy(given: Mapping[str, Any]) -> Policy:
    times = {
        f"{name}_ms": round(given[name] * 1e3)
        for name in POLICY_TIMES
        if given.get(name) is not None
    }
    return replace(
        AS_IT_WAS,
        **times,
        spares=given.get("spares"),
        straggler_share=given.get("straggler_threshold"),
        no_spare=given.get("no_spare"),
    )


def _compared(history: History, policy: Policy, seed: int, late: Late) -> Compared:
    before = replay(history)
    after = before if policy == AS_IT_WAS else replay(history, policy)
    return Compared(
        history=history,
        policy=policy,
        before=before,
        after=after,
        saving=saving(
            before,
            after,
            failures=len(history.unplanned),
            seed=seed,
            progress=lambda done, total: late.tell("drawing resamples", done, total),
        ),
    )


def _swept_json(compared: Compared) -> Json:
    value = replay_json(compared)
    return {
        "goodput": value["goodput"]["policy"],
        **{name: value[name] for name in value if name.startswith("saved")},
    }


def _read(session: Session, source: str, stall_s: float | None, late: Late) -> History:
    """Return the history of standard input, of a file if there is one, else of a job."""
    if not source.strip():
        raise InvalidInput("--from-history names nothing: give a job, a file, or - for its input")
    if source == STDOUT:
        late.tell("reading standard input", 0, None)
        return _told(sys.stdin.buffer.read(), "standard input", stall_s)
    path = Path(source)
    if path.is_dir():
        raise InvalidInput(f"{source} is a folder: name the file in it that tells of the run")
    if not path.exists():  # what a shell makes of <(...) is there and no plain file
        if os.sep in source or source.endswith(SUFFIXES):
            raise NotFoundError(
                f"there is no file {source}: `everstep jobs export JOB --out {source}` writes one"
            )
        return _of_job(session, source, stall_s, late)
    late.tell(f"reading {path.name}", 0, None)
    return _told(path.read_bytes(), source, stall_s)


def _told(data: bytes, source: str, stall_s: float | None) -> History:
    """Return the history that an exported document or exported events tell."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{source} is no history: it is no text") from error
    if not text.strip():
        raise InvalidInput(f"{source} is no history: it is empty")
    document = _document(text)
    if document is None:
        return read_events(text, source=source, stall_ms=round((stall_s or 0.0) * 1e3))
    _refuse_stall(stall_s)
    return read_document(document, source=source)


def _of_job(session: Session, job_id: str, stall_s: float | None, late: Late) -> History:
    _refuse_stall(stall_s)
    try:
        with session.client() as client:
            document = _asked(client, job_id, late)
    except NotFoundError as error:
        raise NotFoundError(f"there is no file {job_id}, and as a job: {error}") from error
    return read_document(document, source=f"job {job_id}")


def _document(text: str) -> Any:
    """Return a file's one JSON value; None if it is lines of events."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # what is nested too deeply is no line of events either
        return None
    return None if isinstance(document, dict) and "recorded_at_ms" in document else document


def _refuse_stall(stall_s: float | None) -> None:
    if stall_s is not None:
        raise InvalidInput(
            "--stall with --from-history is for exported events, which do not tell it: this "
            "record has measured the stalls"
        )


def _asked(client: Client, job_id: str, late: Late) -> Json:
    """Ask the services for all that they know of a job."""
    job = client.job(job_id)
    points: list[Json] = []
    while True:
        last = points[-1]["step"] if points else -1
        page = client.metrics(job_id, after_step=last, limit=POINTS_MAX)
        points += page
        late.tell("asking for steps", min(len(points), job["steps"]), job["steps"])
        if len(page) < POINTS_MAX:
            break
    incidents = [one for one in client.incidents() if one["job_id"] in ("", job_id)]
    return document_of(
        job=job,
        incidents=incidents,
        goodput=client.goodput(job_id),
        points=points,
        hosts=client.hosts(),
        checkpoints=client.checkpoints(job_id),
        intervals=client.interval(job_id)["history"],
        exported_at_ms=SystemClock().now_ms(),
    )


def _print(table: Table) -> None:
    OUT.print(table.title, style="bold", markup=False)
    print_table(table.columns, table.rows, empty="nothing")
    if table.note:
        OUT.print(table.note, style="dim", markup=False)
    OUT.print()
