"""``checkpoints``: what can be gone back to, whether it is sound, and the model in one file.

What people say about checkpoints is in ``checkpoint_judging``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import Progress

from everstep.cli import checkpoint_files, checkpoint_judging
from everstep.cli.checkpoint_judging import Generation, StepNumber
from everstep.cli.options import JobFilter, JobId, JsonFlag, register, register_listing, session_of
from everstep.cli.output import ERR, OUT, print_json, print_table, short_time, size
from everstep.core.errors import InvalidInput, NotFoundError
from everstep.core.ports import ObjectStore
from everstep.core.system import SystemClock
from everstep.local import launch
from everstep.objectstore.s3 import S3Store

T = TypeVar("T")
ENDPOINT = "EVERSTEP_S3_ENDPOINT"


class Form(StrEnum):
    """What an exported file is."""

    SAFETENSORS = "safetensors"


checkpoints_app = typer.Typer(
    name="checkpoints",
    rich_markup_mode=None,
    help="List checkpoints, check one, or get the model out of one.",
)


def checkpoints(context: typer.Context, job: JobFilter = "", as_json: JsonFlag = False) -> None:
    """List checkpoints in the object store.

    Only complete ones can be gone back to. Abandoned ones are complete too, but a restart went
    back over their step; of spoilt ones a part could not be read, and suspect ones were made when
    the numbers may have been bad.

    Examples:
      everstep checkpoints --job demo-4f21ac
      everstep checkpoints verify demo-4f21ac 60
      everstep checkpoints plan demo-4f21ac
    """
    if context.invoked_subcommand is not None:
        return
    with session_of(context).client() as client:
        found = client.checkpoints(job)
        if job and not found:
            client.job(job)  # says so if there is no such job
    if as_json:
        print_json(found)
        return
    rows = [
        [
            checkpoint["job_id"],
            checkpoint["step"],
            checkpoint["generation"],
            _state(checkpoint),
            _remarks(checkpoint),
            size(checkpoint.get("bytes") or 0),
            checkpoint.get("manifest_uri", ""),
        ]
        for checkpoint in found
    ]
    columns = ["job", "step", "generation", "state", "", "size", "manifest"]
    print_table(columns, rows, empty="no checkpoints yet")


def show(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    generation: Generation = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one checkpoint (also: inspect).

    What it is of, where the data stood, what it is worth and why, and every rank's object.

    Example:
      everstep checkpoints show demo-4f21ac 60
    """
    with session_of(context).client() as client:
        found = client.checkpoint(job, step, generation)
    if as_json:
        print_json(found)
        return
    at_ms = found["completed_at_ms"]
    completed = short_time(at_ms, now_ms=SystemClock().now_ms()) if at_ms else "not yet"
    lines = {
        "job": found["job_id"],
        "step": f"{found['step']}, made by generation {found['generation']}",
        "state": _state(found) + _fate(found),
        "trust": _trust(found),
        "pinned": _pinned(found),
        "layout": _layout(found),
        "size": f"{size(found['bytes'])} of {found['world_size']} ranks",
        "data": found["data_state"],
        "completed": completed,
        "manifest": found["manifest_uri"] or "none yet",
    }
    for name, value in lines.items():
        OUT.print(f"{name:<10} {value}", markup=False)
    if not found["shards"]:
        return
    rows = [[s["rank"], size(s["bytes"]), s["checksum"], s["uri"]] for s in found["shards"]]
    print_table(["rank", "size", "xxh3-128", "object"], rows, empty="no objects yet")


def verify(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    generation: Generation = None,
    as_json: JsonFlag = False,
) -> None:
    """Read every object of a checkpoint again.

    Names each tensor that is not as it was, and looks whether torch alone could read it; exit
    code 1 if anything is wrong.

    Example:
      everstep checkpoints verify demo-4f21ac 60
    """
    found = _with_objects(
        context,
        (job, step, generation),
        "reading",
        checkpoint_files.verify,
        quiet=as_json,
    )
    bad = [one for one in found.objects if one.faults]
    ok = not bad and not found.torch_fault
    if as_json:
        print_json(
            {
                "ok": ok,
                "torch_fault": found.torch_fault,
                "objects": [
                    {
                        "rank": one.rank,
                        "uri": one.uri,
                        "bytes": one.bytes,
                        "tensors": one.tensors,
                        "faults": list(one.faults),
                    }
                    for one in found.objects
                ],
            }
        )
    else:
        for one in bad:
            for fault in one.faults:
                OUT.print(f"rank {one.rank}, {one.uri}: {fault}", markup=False)
        total = size(sum(one.bytes for one in found.objects))
        tensors = sum(one.tensors for one in found.objects)
        OUT.print(
            f"{len(bad)} of {len(found.objects)} objects are bad"
            if bad
            else f"all {len(found.objects)} objects are sound: {tensors} tensors, {total}"
        )
        if found.torch_fault:
            OUT.print(f"torch alone cannot read it: {found.torch_fault}", markup=False)
        if bad:
            ERR.print(
                f"`everstep checkpoints trust {job} {step} suspect` keeps restarts away from it",
                markup=False,
            )
    raise typer.Exit(0 if ok else 1)


def export(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    out: Annotated[Path, typer.Option("--out", help="The file to write, e.g. model.safetensors.")],
    part: Annotated[
        str, typer.Option("--part", help="What was tracked by this name: run.track(NAME=...).")
    ] = "model",
    form: Annotated[
        Form, typer.Option("--format", help="Of the file; there is one so far.")
    ] = Form.SAFETENSORS,
    generation: Generation = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a model unsharded, as one safetensors file.

    For everything else, the checkpoint's folder is one that torch.distributed.checkpoint reads.

    Example:
      everstep checkpoints export demo-4f21ac 60 --out model.safetensors
    """
    assert form is Form.SAFETENSORS, "the option takes nothing else"
    folder = out.resolve().parent
    if out.exists() and not out.is_file():
        raise InvalidInput(f"{out} is there and is no file: give another --out")
    if not folder.is_dir():
        raise InvalidInput(f"there is no directory {folder}: make it, or give another --out")

    async def work(
        store: ObjectStore, manifest: dict[str, Any], progress: checkpoint_files.Progress
    ) -> int:
        return await checkpoint_files.export(store, manifest, part, out.resolve(), progress)

    tensors = _with_objects(context, (job, step, generation), "reading", work, quiet=as_json)
    written = out.stat().st_size
    if as_json:
        print_json({"file": str(out), "tensors": tensors, "bytes": written})
        return
    OUT.print(f"{out}: {tensors} tensors, {size(written)}", markup=False)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    register_listing(checkpoints_app, checkpoints)
    register(checkpoints_app, show)
    register(checkpoints_app, show, "inspect", hidden=True)
    register(checkpoints_app, verify)
    register(checkpoints_app, export)
    checkpoint_judging.add_to(checkpoints_app)
    app.add_typer(checkpoints_app)
    app.add_typer(checkpoints_app, name="checkpoint", hidden=True)


def _state(checkpoint: dict[str, Any]) -> str:
    state = str(checkpoint.get("state", ""))
    gone = state in {"deleted", "purged"}
    return state if gone else str(checkpoint.get("unusable_why") or state)


def _fate(checkpoint: dict[str, Any]) -> str:
    """Say what its state means for a restart."""
    if checkpoint["deleted_why"]:
        left = "no object of it is left" if checkpoint["state"] == "purged" else "its objects go"
        return f" ({checkpoint['deleted_why']}): {left}"
    return ", a restart may go on from it" if checkpoint["restorable"] else ""


def _remarks(checkpoint: dict[str, Any]) -> str:
    """Say in a word or two what somebody has said of it."""
    verified = checkpoint.get("trust") == "verified"
    return " ".join(["verified"] * verified + ["pinned"] * bool(checkpoint.get("pinned")))


def _trust(checkpoint: dict[str, Any]) -> str:
    why = checkpoint["trust_why"]
    return f"{checkpoint['trust']} ({why})" if why else str(checkpoint["trust"])


def _pinned(checkpoint: dict[str, Any]) -> str:
    if not checkpoint["pinned"]:
        return "no"
    note = checkpoint["pin_note"]
    return f"by {checkpoint['pinned_by']}" + (f": {note}" if note else "")


def _layout(checkpoint: dict[str, Any]) -> str:
    sizes = checkpoint["layout"] or {}
    return " x ".join(f"{name} {count}" for name, count in sizes.items() if count > 1) or (
        "one rank" if sizes else "not known"
    )


def _with_objects(
    context: typer.Context,
    which: tuple[str, int, int | None],
    doing: str,
    work: Callable[[ObjectStore, dict[str, Any], checkpoint_files.Progress], Awaitable[T]],
    *,
    quiet: bool,
) -> T:
    """Do something with a complete checkpoint's manifest and the store, showing progress."""
    session = session_of(context)
    with session.client() as client:
        found = client.checkpoint(*which)
    uri = str(found["manifest_uri"])
    if found["state"] in {"deleted", "purged"}:
        raise NotFoundError(
            f"the checkpoint of step {which[1]} of job {which[0]} was deleted "
            f"({found['deleted_why']}): `everstep checkpoints --job {which[0]}` lists those that "
            "there are"
        )
    if not uri:
        raise NotFoundError(
            f"the checkpoint of step {which[1]} of job {which[0]} is {found['state']}: only a "
            "complete one has a manifest"
        )

    async def run(progress: checkpoint_files.Progress) -> T:
        async with _store(context) as store:
            manifest = checkpoint_files.manifest_of(await _manifest(store, uri, which[0]), uri)
            return await work(store, manifest, progress)

    disable = quiet or not ERR.is_terminal
    with (
        checkpoint_files.cleaned_up(),
        Progress(console=ERR, transient=True, disable=disable) as bar,
    ):
        task = bar.add_task(doing, total=None)
        return asyncio.run(run(lambda done, total: bar.update(task, completed=done, total=total)))


async def _manifest(store: ObjectStore, uri: str, job: str) -> bytes:
    try:
        return await store.get(uri)
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}: somebody has deleted the manifest, and without it nothing says what the "
            f"other objects must be; `everstep checkpoints --job {job}` lists other steps"
        ) from None


def _store(context: typer.Context) -> Any:
    """Open the store that the environment names, or the one of this machine's stack."""
    endpoint = os.environ.get(ENDPOINT)
    if endpoint:
        return S3Store.open(
            endpoint=endpoint,
            access_key=os.environ.get("EVERSTEP_S3_ACCESS_KEY", ""),
            secret_key=os.environ.get("EVERSTEP_S3_SECRET_KEY", ""),
            bucket=os.environ.get("EVERSTEP_S3_BUCKET", "everstep"),
            secure=os.environ.get("EVERSTEP_S3_SECURE", "true").lower() != "false",
        )
    try:
        stack = launch.require_stack(session_of(context).paths)
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}; for the object store of a cluster set {ENDPOINT} and the keys "
            "(docs/running.md)"
        ) from error
    from everstep.cli.demo_state import open_store  # reads states: only where it is needed

    return open_store(stack)()
