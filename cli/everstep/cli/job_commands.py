"""``jobs``: list jobs, look at one, steer one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from everstep.cli.checkpoint_judging import INT64_MAX
from everstep.cli.history_command import export
from everstep.cli.interval_command import interval
from everstep.cli.live import ranks_of, reduction
from everstep.cli.options import JobId, JsonFlag, register, register_listing, session_of
from everstep.cli.output import (
    OUT,
    clock_time,
    counted,
    duration,
    print_json,
    print_table,
    ranges,
    share,
    short_time,
)
from everstep.cli.position import ENDED, with_current_step, with_current_steps
from everstep.cli.stacks_command import stacks
from everstep.core.errors import NotFoundError, Unavailable
from everstep.core.system import SystemClock

UNCOPIED_SHOWN: Final = 8  # hosts; --json names all
AUDITS_SHOWN: Final = 3  # the newest: of one that differs, what two of them have told
REFUSED_SHOWN: Final = 8  # sources of a generation; --json has all

jobs_app = typer.Typer(
    name="jobs",
    rich_markup_mode=None,
    help="List jobs, look at one, steer one.",
)


def jobs(
    context: typer.Context,
    audits: Annotated[
        bool, typer.Option("--audits", help="Also those that did steps of others again.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the jobs, newest first.

    Examples:
      everstep jobs
      everstep jobs show demo-4f21ac
      everstep jobs restart demo-4f21ac --from-step 40
      everstep jobs interval demo-4f21ac
    """
    if context.invoked_subcommand is not None:
        return
    with session_of(context).client() as client:
        found = with_current_steps(client, client.jobs(audits=audits))
    if as_json:
        print_json(found)
        return
    now_ms = SystemClock().now_ms()
    rows = [
        [
            job["job_id"],
            job["phase"],
            f"{job['step']}/{job['steps']}",
            job["generation"],
            ranks_of(job),
            short_time(job["submitted_at_ms"], now_ms=now_ms),
            short_time(job["ended_at_ms"], now_ms=now_ms),
        ]
        for job in found
    ]
    columns = ["job", "phase", "step", "generation", "ranks", "submitted", "ended"]
    print_table(columns, rows, empty="no jobs yet: everstep run job.yaml")


def show(context: typer.Context, job_id: JobId, as_json: JsonFlag = False) -> None:
    """Show one job: hosts, restarts, goodput, what it waits for.

    Example:
      everstep jobs show demo-4f21ac
    """
    with session_of(context).client() as client:
        job = with_current_step(client, client.job(job_id))
        uncopied: list[dict[str, Any]] = []
        refused: list[dict[str, Any]] = []
        audits: list[dict[str, Any]] = []
        try:
            goodput = client.goodput(job_id)
        except (NotFoundError, Unavailable):  # it has not heard of the job yet, or is away
            goodput = {"wall_ms": 0, "causes": {}}
        with contextlib.suppress(NotFoundError, Unavailable):
            uncopied = client.uncopied(job_id)
            refused = client.refused_sources(job_id)
            audits = client.audits(job_id)
    if as_json:
        found = {"goodput": goodput, "uncopied": uncopied, "refused_sources": refused}
        print_json({**job, **found, "audits": audits})
        return
    OUT.print(f"job        {job['job_id']} ({job['name']})", markup=False)
    step = f"step {job['step']} of {job['steps']}"
    OUT.print(f"phase      {job['phase']}, generation {job['generation']}, {step}")
    layout = " x ".join(f"{name} {count}" for name, count in job["layout"].items() if count > 1)
    OUT.print(f"layout     {layout or 'no parallelism'} ({counted(job['world_size'], 'rank')})")
    OUT.print(f"submitted  {clock_time(job['submitted_at_ms'])}")
    if job["ended_at_ms"]:
        OUT.print(f"ended      {clock_time(job['ended_at_ms'])}")
    if reduction(job):
        OUT.print(f"reduced    {reduction(job)}")
    if job.get("waits"):
        _print_waits(job["waits"])
    if job["detail"]:
        OUT.print(f"detail     {job['detail']}", markup=False)
    for one in uncopied[:UNCOPIED_SHOWN]:
        OUT.print(f"copies     {uncopied_line(one)}", markup=False)
    if len(uncopied) > UNCOPIED_SHOWN:
        OUT.print(f"           and {len(uncopied) - UNCOPIED_SHOWN} more hosts have none")
    for one in audits[:AUDITS_SHOWN]:
        OUT.print(f"audit      {audit_line(one)}", markup=False)
    _print_placement(job)
    _print_recoveries(job, refused)
    _print_goodput(goodput)


def stop(context: typer.Context, job_id: JobId) -> None:
    """End a job; `jobs restart` begins it again.

    Example:
      everstep jobs stop demo-4f21ac
    """
    with session_of(context).client() as client:
        phase = client.act(job_id, "stop").get("phase", "stopping")
    if phase in ENDED:
        OUT.print(f"job {job_id} has {phase}: there is nothing to stop", markup=False)
    else:
        OUT.print(f"job {job_id} stops; follow it with `everstep attach {job_id}`", markup=False)


def pause(context: typer.Context, job_id: JobId) -> None:
    """Let a job finish its step and wait.

    Its hosts stay reserved, and keep its snapshots in memory.

    Example:
      everstep jobs pause demo-4f21ac
    """
    _act(context, job_id, "pause", "pauses")


def resume(
    context: typer.Context,
    job_id: JobId,
    skip_batches: Annotated[
        bool,
        typer.Option("--skip-batches", help="Leave out the batches that the job is held for."),
    ] = False,
) -> None:
    """Let a paused job go on.

    A job that is held because its loss went up once more is resumed with all of its batches, unless
    you say otherwise; `everstep jobs show` names those that are in question.

    Example:
      everstep jobs resume demo-4f21ac
    """
    how = "goes on without the batches that it was held for" if skip_batches else "goes on"
    _act(context, job_id, "resume", how, {"skip_batches": True} if skip_batches else None)


def checkpoint(context: typer.Context, job_id: JobId) -> None:
    """Write a durable checkpoint at the next step.

    Example:
      everstep jobs checkpoint demo-4f21ac
    """
    _act(context, job_id, "checkpoint", "writes a checkpoint")


def restart(
    context: typer.Context,
    job_id: JobId,
    from_step: Annotated[
        int,
        typer.Option(
            "--from-step", min=-1, max=INT64_MAX, help="Restore this step; -1: the newest."
        ),
    ] = -1,
) -> None:
    """Start a job again from a kept step.

    A job that has failed or was stopped begins again, too; of one that runs all ranks end at once.
    `everstep checkpoints` lists the steps that can be gone back to; what was done after that step
    is abandoned. The step's stored objects are looked at first: if one is damaged, nothing is
    begun, and the run goes on.

    Example:
      everstep jobs restart demo-4f21ac --from-step 40
    """
    where = "the newest step" if from_step < 0 else f"step {from_step}"
    _act(context, job_id, "restart", f"restarts from {where}", {"from_step": from_step})


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    register_listing(jobs_app, jobs)
    for command in (show, stop, pause, resume, restart, checkpoint, interval, stacks, export):
        register(jobs_app, command)
    app.add_typer(jobs_app)


def _act(
    context: typer.Context, job_id: str, action: str, says: str, body: dict[str, Any] | None = None
) -> None:
    with session_of(context).client() as client:
        checked = client.act(job_id, action, body).get("checked")
    if checked:
        OUT.print(checked, markup=False)
    OUT.print(f"job {job_id} {says}; follow it with `everstep attach {job_id}`", markup=False)


def _print_waits(waits: dict[str, Any]) -> None:
    """Say which stage a job is at, since when, and what for."""
    OUT.print(f"waits      {waits_line(waits, now_ms=SystemClock().now_ms())}", markup=False)
    if waits["trouble"]:
        since = clock_time(waits["trouble_since_ms"])
        OUT.print(f"           tried again since {since}: {waits['trouble']}", markup=False)


def waits_line(waits: dict[str, Any], *, now_ms: int) -> str:
    """Say what a job waits for.

    Args:
        waits: as the controller says it.
        now_ms: of now, to say for how long already [ms since epoch].
    """
    stage = waits["stage"].replace("_", " ")
    since_ms = waits["since_ms"]
    for_long = duration(max(now_ms - since_ms, 0))
    return f"for {waits['why']} (stage {stage}, since {clock_time(since_ms)}, {for_long})"


def uncopied_line(uncopied: dict[str, Any]) -> str:
    """Say who keeps no copies of whose ranks, why, and what that means."""
    host_id, ranks = uncopied["host_id"], uncopied["ranks"]
    return (
        f"{uncopied['peer_host_id']} keeps none of {host_id}'s rank{'s' if len(ranks) > 1 else ''} "
        f"{ranges(ranks)} since {clock_time(uncopied['since_ms'])}: {uncopied['why']}; "
        f"if {host_id} is lost, the job goes back to its newest checkpoint"
    )


def audit_line(audit: dict[str, Any]) -> str:
    """Say what came of a step that spare hosts did again, and when."""
    finding = audit["finding"].replace("_", " ")
    return f"{clock_time(audit['at_ms'])} {finding}: {audit['why']}"


def _print_placement(job: dict[str, Any]) -> None:
    hosts = (job["placement"] or {}).get("hosts", [])
    rows = [[h["host_id"], ranges(h["ranks"]), h["replica_host_id"]] for h in hosts]
    if rows:
        print_table(["host", "ranks", "copies at"], rows, empty="")


def _print_recoveries(job: dict[str, Any], refused: Sequence[dict[str, Any]]) -> None:
    for recovery in job.get("recoveries", []):
        OUT.print(_recovery_line(recovery), markup=False)
        mine = [one for one in refused if one["generation"] == recovery["generation"]]
        for one in mine[:REFUSED_SHOWN]:
            OUT.print(f"           {refused_line(one)}", markup=False)
        if len(mine) > REFUSED_SHOWN:
            OUT.print(f"           and {len(mine) - REFUSED_SHOWN} more sources")


def refused_line(refused: dict[str, Any]) -> str:
    """Say which planned source of whose state was not used, and why."""
    where = refused["uri"] or refused["host_id"]
    kind = refused["kind"].replace("_", " ")
    return (
        f"rank {refused['rank']} could not use step {refused['step']} from {kind}"
        f"{f' ({where})' if where else ''}: {refused['detail']}"
    )


def _recovery_line(recovery: dict[str, Any]) -> str:
    lost, new = ", ".join(recovery["lost_hosts"]), ", ".join(recovery["replacements"])
    sources = ", ".join(f"{count} {name}" for name, count in recovery["sources"].items() if count)
    step = recovery["restore_step"]
    parts = [
        recovery["cause"],
        f"lost {lost}" if lost else "",
        f"replaced by {new}" if new else "",
        f"from step {step} ({sources})" if sources else "",
        *(f"{name} {duration(ms)}" for name, ms in recovery["stages_ms"].items()),
        recovery.get("remark") or "",
    ]
    return f"generation {recovery['generation']}: {', '.join(part for part in parts if part)}"


def _print_goodput(goodput: dict[str, Any]) -> None:
    rows = [
        [cause, duration(ms), share(ms, goodput["wall_ms"])]
        for cause, ms in sorted(goodput["causes"].items(), key=lambda item: -item[1])
        if ms
    ]
    print_table(["time went to", "", ""], rows, empty="")
