"""``checkpoints verify``: reads a checkpoint again, and tells the registry what was found."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from everstep.cli import checkpoint_files
from everstep.cli.checkpoint_files import Checked, Verified
from everstep.cli.checkpoint_judging import Generation, StepNumber, me
from everstep.cli.checkpoint_store import with_objects
from everstep.cli.options import JobId, JsonFlag, session_of
from everstep.cli.output import ERR, OUT, print_json, size

WHY_MAX: Final = 500  # characters that the registry takes


def verify(
    context: typer.Context,
    job: JobId,
    step: StepNumber,
    generation: Generation = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only look: do not tell the registry.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Read every object of a checkpoint again.

    Names each tensor that is not as it was, and looks whether torch alone could read it; exit
    code 1 if anything is wrong. The registry is told: no restart takes a bad object, until a later
    look finds the checkpoint whole.

    Example:
      everstep checkpoints verify demo-4f21ac 60
    """
    found = with_objects(
        context,
        (job, step, generation),
        "reading",
        checkpoint_files.verify,
        quiet=as_json,
    )
    bad = [one for one in found.objects if one.faults]
    if not as_json:
        _print(found, bad)
    told: dict[str, Any] = {}
    if not dry_run:
        body = {
            "whole": True,
            "bad_ranks": [one.rank for one in bad],
            "why": why_of(bad),
            "by": me(),
        }
        with session_of(context).client() as client:
            client.judge("POST", (job, step, found.generation), "check", body)
            told = client.checkpoint(job, step, found.generation)
    ok = not bad and not found.torch_fault
    if as_json:
        print_json(_document(found, told, ok=ok))
    elif bad:
        ERR.print(_outcome(told), markup=False)
    raise typer.Exit(0 if ok else 1)


def why_of(bad: list[Checked]) -> str:
    """Say in what way objects are bad, in as many words as the registry takes."""
    said = "; ".join(f"rank {one.rank}: {one.faults[0]}" for one in bad)
    return said if len(said) <= WHY_MAX else said[: WHY_MAX - 3] + "..."


def _print(found: Verified, bad: list[Checked]) -> None:
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


def _document(found: Verified, told: dict[str, Any], *, ok: bool) -> dict[str, Any]:
    return {
        "ok": ok,
        "torch_fault": found.torch_fault,
        "told": bool(told),
        "restorable": told.get("restorable"),
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


def _outcome(told: dict[str, Any]) -> str:
    if not told:
        return "the registry was not told: without --dry-run, restarts would take no bad object"
    return (
        "the registry knows: no restart takes a bad object, until `everstep checkpoints verify` "
        "finds all of them whole"
    )
