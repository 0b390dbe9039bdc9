"""Finds before a job is launched what would waste its run: nowhere to write, nothing to compare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from everstep.chaos.possible import Setting
from everstep.cli.client import Client
from everstep.cli.position import ENDED
from everstep.core.errors import InvalidInput, RefusedError
from everstep.core.spec import parse_spec
from everstep.local.state import Stack

# What an end state follows from; two jobs in which one of them differs end unequal.
STATE_FIELDS: Final = ("entry", "argv", "args", "layout", "steps", "seed", "deterministic", "data")


def require_writable(out: Path) -> None:
    """Refuse a file that could not be written in the end.

    Raises:
        InvalidInput: says what is in the way.
    """
    directory = out.parent
    if not directory.is_dir():
        raise InvalidInput(f"--out {out}: there is no directory {directory}")
    if out.is_dir():
        raise InvalidInput(f"--out {out}: expected a file, found a directory")
    if not os.access(out if out.exists() else directory, os.W_OK):
        raise InvalidInput(f"--out {out}: it cannot be written")


def require_comparable(client: Client, against: str, spec: Mapping[str, Any]) -> None:
    """Refuse a job whose end state this one's cannot be compared with.

    Args:
        client: of the stack.
        against: its id.
        spec: of the job that is to be disturbed.

    Raises:
        NotFoundError: there is no such job.
        InvalidInput: it has no end state, or another spec.
    """
    job = client.job(against)
    if job["phase"] != "succeeded":
        raise InvalidInput(
            f"--against {against}: it is {job['phase']}, and only a job that has succeeded has an "
            "end state to compare with"
        )
    ours, theirs = _state_fields(spec), _state_fields(job["spec"])
    other = [name for name in STATE_FIELDS if ours[name] != theirs[name]]
    if other:
        raise InvalidInput(
            f"--against {against}: its end state is another one anyway, for its spec differs in "
            f"{', '.join(other)}"
        )
    last = [one for one in client.checkpoints(against) if one["step"] == job["spec"]["steps"]]
    if not any(one["complete"] for one in last):
        raise InvalidInput(
            f"--against {against}: the checkpoint of its last step is not kept any more "
            f"(`everstep checkpoints --job {against}`)"
        )


def require_reference(spec: Mapping[str, Any], *, leaves_batches_out: bool) -> None:
    """Refuse to make an undisturbed run that cannot be made.

    Raises:
        InvalidInput: the run that never saw some batches needs them to be named in its spec.
    """
    if leaves_batches_out and not spec.get("data"):
        raise InvalidInput(
            "--reference: batches will be left out, and the spec has no `data` in which the run to "
            "compare with could leave them out too"
        )


def require_running(job: Mapping[str, Any]) -> None:
    """Refuse a job that cannot be disturbed any more. Raises RefusedError."""
    if job["phase"] in ENDED:
        raise RefusedError(
            "job_ended", f"job {job['job_id']} has {job['phase']}: there is nothing to disturb"
        )


def setting_of(stack: Stack | None, spec: Mapping[str, Any] | None) -> Setting:
    """Gather what is known of where a campaign is to be performed."""
    hosts = None if stack is None else frozenset(host.host_id for host in stack.hosts)
    if spec is None:
        return Setting(hosts=hosts)
    return Setting(
        steps=int(spec["steps"]),
        object_every_steps=int(spec["checkpoint"]["object_every_steps"]),
        hosts=hosts,
        job_hosts=0 if stack is None else hosts_needed(stack, spec["layout"]),
    )


def hosts_needed(stack: Stack, layout: Mapping[str, int]) -> int:
    """Return how many hosts a job of this layout gets; 0: they differ, so nobody knows yet."""
    chips = {host.chips for host in stack.hosts}
    if len(chips) != 1:
        return 0
    tp = int(layout["tp"])
    room = chips.pop() // tp
    groups = world_size(layout) // tp
    return -(-groups // room) if room else 0


def world_size(layout: Mapping[str, int]) -> int:
    """Return how many ranks a layout has."""
    size = 1
    for count in layout.values():
        size *= int(count)
    return size


def _state_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an end state follows from, without the batches that were left out on purpose."""
    told = parse_spec(dict(spec)).model_dump(mode="json")
    if told["data"] is not None:
        told["data"].pop("skipped", None)
    return {name: told[name] for name in STATE_FIELDS}
