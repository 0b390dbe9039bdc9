"""Keeps snapshots of one layout apart from those of another.

A rank's number says nothing without its layout: when that changes, what lies here is set aside in
one rename a directory, and what the new ranks need of it is brought beside it. It goes when they
need it no more (``HostMemory.drop_strangers``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from everstep.core.placement import Layout
from everstep.memory import layout as places
from everstep.memory.full import replace_file

_NAME: Final = "layout"


def set_aside(root: Path, job_id: str, generation: int, layout: Layout) -> list[Path]:
    """Move what ranks of another layout left out of the way of ``layout``'s.

    Done again after it was interrupted, it moves what is left. Snapshots on their way to the object
    store are dropped: whoever sent them is fenced.

    Returns:
        The directories that are no longer where they were; none if nothing was in the way.
    """
    job = places.job_dir(root, job_id)
    written = job / _NAME
    known = _read(written)
    moved: list[Path] = []
    if known not in {None, layout}:
        target = _next_dir(root, job_id, generation)
        for own in (True, False):
            for _, directory in list(places.ranks_in(root, job_id, own=own)):
                places.durable_path(directory).unlink(missing_ok=True)
                target.mkdir(parents=True, exist_ok=True)
                directory.replace(target / directory.name)
                moved.append(directory)
    if known != layout:
        replace_file(written, msgspec.json.encode(asdict(layout)))
    return moved


def homes(root: Path, job_id: str, rank: int, *, own: bool) -> Iterator[Path]:
    """Yield every directory that may hold snapshots of a rank: first where they are written.

    In this order, so that one that is set aside meanwhile is not overlooked.
    """
    now = places.rank_dir if own else places.replica_dir
    current = now(root, job_id, rank)
    yield current
    for old in places.old_dirs(root, job_id):
        yield old / current.name


def all_homes(root: Path, job_id: str, *, own: bool) -> Iterator[tuple[int, Path]]:
    """Yield ``(rank, directory)`` of all that is here, that of other layouts last."""
    yield from places.ranks_in(root, job_id, own=own)
    for old in places.old_dirs(root, job_id):
        yield from places.ranks_under(old, own=own)


def _read(path: Path) -> Layout | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Layout)
    except FileNotFoundError:
        return None


def _next_dir(root: Path, job_id: str, generation: int) -> Path:
    base = places.old_dir(root, job_id, generation)
    number = 1
    while (path := base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path
