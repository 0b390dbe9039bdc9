"""``checkpoints``: what can be gone back to, whether it is sound, and the model in one file.

What people say about checkpoints is in ``checkpoint_judging``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from everstep.cli import checkpoint_files, checkpoint_judging
from everstep.cli.checkpoint_judging import Generation, StepNumber
from everstep.cli.checkpoint_store import with_objects
from everstep.cli.checkpoint_verify import verify
from everstep.cli.options import JobFilter, JobId, JsonFlag, register, register_listing, session_of
from everstep.cli.output import OUT, print_json, print_table, short_time, size
from everstep.core.errors import InvalidInput
from everstep.core.ports import ObjectStore
from everstep.core.system import SystemClock


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
        "objects": _looked_at(found),
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

    tensors = with_objects(context, (job, step, generation), "reading", work, quiet=as_json)
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


def _looked_at(checkpoint: dict[str, Any]) -> str:
    """Say what the newest look at its objects has shown."""
    at_ms = checkpoint["checked_at_ms"]
    if not at_ms:
        return "read back when it was completed"
    when = short_time(at_ms, now_ms=SystemClock().now_ms())
    return f"{checkpoint['damage'] or 'all sound, ' + checkpoint['checked_by'] + ' found'}, {when}"


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
