"""Opens the object store of the stack or of a cluster, and reads a checkpoint out of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import typer
from rich.progress import Progress, TaskID

from everstep.cli import checkpoint_files
from everstep.cli.options import session_of
from everstep.cli.output import ERR
from everstep.core.errors import NotFoundError
from everstep.core.ports import ObjectStore
from everstep.local import launch

T = TypeVar("T")
ENDPOINT = "EVERSTEP_S3_ENDPOINT"


def with_objects(
    context: typer.Context,
    which: tuple[str, int, int | None],
    doing: str,
    work: Callable[[ObjectStore, dict[str, Any], checkpoint_files.Progress], Awaitable[T]],
    *,
    quiet: bool,
) -> T:
    """Do something with a complete checkpoint's manifest and the store, showing progress.

    Args:
        context: of the command.
        which: job, step, and generation (None: the newest that has the step).
        doing: what the progress bar says.
        work: gets the store, the manifest, and whom to tell of progress.
        quiet: show no progress.

    Raises:
        NotFoundError: there is no such complete checkpoint, or nothing to find it by.
        CorruptData: its manifest is damaged, or another one's.
        Unavailable: the registry or the object store does not answer.
    """
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
            data = await _manifest(store, uri, which[0])
            manifest = checkpoint_files.manifest_of(data, found)
            return await work(store, manifest, progress)

    disable = quiet or not ERR.is_terminal
    try:
        with (
            checkpoint_files.cleaned_up(),
            Progress(console=ERR, transient=True, disable=disable) as bar,
        ):
            task = bar.add_task(doing, total=None)
            told = partial(_tell, bar, task)
            return asyncio.run(run(told))
    except SystemExit as ended:
        # All is removed. A thread may still wait for the store, for up to a minute, and the
        # interpreter would wait for it: whoever has sent the signal would lose patience.
        sys.stdout.flush()
        os._exit(int(ended.code or 0))


def _tell(bar: Progress, task: TaskID, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total)


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
    # Takes longer to import than all of the commands: only where it is needed.
    from everstep.objectstore.s3 import S3Store

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
