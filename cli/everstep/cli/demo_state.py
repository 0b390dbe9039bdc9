"""Fetches the final states of two jobs from the object store and compares them bit for bit."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from everstep.cli.client import Client
from everstep.core.errors import Unavailable
from everstep.local.state import Stack
from everstep.memory.compare import Comparison, compare
from everstep.objectstore.s3 import S3Store

CHUNK_BYTES: Final = 4 << 20  # few round trips, little memory
DURABLE_TIMEOUT_S: Final = 60.0  # uploads of the demo's few MB take a second
POLL_S: Final = 0.2


def wait_durable(
    client: Client, job_id: str, step: int, *, timeout_s: float = DURABLE_TIMEOUT_S
) -> dict[str, Any]:
    """Return the complete checkpoint of ``step``.

    Raises:
        Unavailable: it is not complete in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        for checkpoint in client.checkpoints(job_id):
            if checkpoint["step"] == step and checkpoint.get("manifest_uri"):
                return checkpoint
        time.sleep(POLL_S)
    raise Unavailable(
        f"job {job_id} has no complete checkpoint of its last step {step} after "
        f"{timeout_s:.0f} s; `everstep checkpoints --job {job_id}` lists what there is"
    )


async def compare_states(
    store: S3Store, run: dict[str, Any], reference: dict[str, Any], directory: Path
) -> Comparison:
    """Download both checkpoints' shards below ``directory`` and compare every tensor."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        files = [await _download(store, one, directory) for one in (run, reference)]
        return compare(*files)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _download(store: S3Store, checkpoint: dict[str, Any], directory: Path) -> Path:
    prefix = f"{PurePosixPath(checkpoint['manifest_uri']).parent}/"
    target = directory / str(checkpoint["job_id"])
    target.mkdir(parents=True)
    for shard in await store.list(prefix):
        name = PurePosixPath(shard.key).name
        if name.endswith(".shard"):
            with (target / name).open("wb") as file:
                async for chunk in store.chunks(shard.key, chunk_bytes=CHUNK_BYTES):
                    file.write(chunk)
    return target


def open_store(stack: Stack) -> Callable[[], Any]:
    """Return how to open the stack's object store."""
    return lambda: S3Store.open(
        endpoint=f"127.0.0.1:{stack.server_ports.s3}",
        access_key=stack.credentials.s3_access_key,
        secret_key=stack.credentials.s3_secret_key,
        bucket="everstep",
        secure=False,
    )
