"""Removes what belongs to nothing: objects and unfinished uploads that no checkpoint will need.

Whether something is an orphan follows from the streams of its checkpoint and of its job, looked up
at the time; it goes when it was one at two looks at least a grace apart. The grace is taken by this
process's own clock, so neither the store's time nor a registry's restart can shorten it. Rejected:
the age of an object (clocks differ, and an old object may be half of a checkpoint that still
grows), and rules of the store's own (they know nothing of generations).

Left alone: jobs that this registry has never heard of (of another registry on the same bucket, or
of a database that was lost), and a manifest without a known checkpoint (the same). Two registries
at once remove the same things, which harms nobody.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from everstep.checkpoint_registry.codec import checkpoint_stream, history_stream
from everstep.checkpoint_registry.commands import (
    DELETED_OVER,
    CheckpointCommand,
    DeleteCheckpoint,
    HistoryCommand,
)
from everstep.checkpoint_registry.events import CheckpointEvent, HistoryEvent
from everstep.checkpoint_registry.object_keys import manifest_key, prefix_of
from everstep.checkpoint_registry.state import Checkpoint, History, Phase
from everstep.core.errors import NotFoundError, Unavailable
from everstep.core.ports import MultipartStore, PartialUpload
from everstep.core.system import Clock
from everstep.objectstore.torch_checkpoint import METADATA_NAME
from everstep.service.handler import Handler

ROOT: Final = "jobs/"
EVERY_S: Final = 300.0  # one request for every thousand objects; orphans only cost room
# What is refused as abandoned or deleted stays so, and a report that was accepted commits within
# seconds. What an older generation has stored of a step that was gone on from may be reported yet,
# by a host that was away; nobody waits longer for it than a quarter of an hour, which covers any
# pause of a process or a database, too.
GRACE_S: Final = 900.0
# In the newest generation nothing tells a slow upload from a dead one but that it grows: a day
# without a new part or object is no upload. Also when the job has ended: an agent that was away
# then goes on with what its uploads' notes name when its host is back, and that is the newest state
# there is of the job. Hosts are away for hours; what is kept for them is one checkpoint, at most.
IDLE_S: Final = 86_400.0
DELETES_MAX: Final = 16  # at once; they carry no data

_KEY: Final = re.compile(r"jobs/([A-Za-z0-9_-]+)/step-(\d+)/gen-(\d+)/.+")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTimes:
    """How often, and how patiently [s]."""

    every_s: float = EVERY_S
    grace_s: float = GRACE_S
    idle_s: float = IDLE_S


class Why(StrEnum):
    """Why something belongs to nothing."""

    OVER = "over"  # of an older generation: nobody goes on storing it
    OVERTAKEN = "overtaken"  # a later step of the same generation is complete: see ``judge``
    DELETED = "deleted"  # came after its checkpoint was purged
    STORED = "stored"  # an upload of a shard that is in a complete checkpoint
    IDLE = "idle"  # nothing of its step has moved for a long time


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Folder:
    """Names a checkpoint's folder."""

    job_id: str
    step: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What lies in a folder; ``part_counts`` are of uploads that have been there for a while."""

    keys: tuple[str, ...] = ()
    uploads: tuple[PartialUpload, ...] = ()
    part_counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """What of a folder belongs to nothing; of ``content`` what is to go."""

    folder: Folder
    why: Why
    content: Content


def judge(
    folder: Folder,
    content: Content,
    history: History,
    checkpoints: Mapping[Folder, Checkpoint],
) -> Orphans | None:
    """Say what of a folder belongs to nothing now.

    A rank has one durable slot and uploads it before it fills it again: when a later step of the
    same generation is complete, nothing of an earlier step is under way any more.

    Args:
        folder: which.
        content: what was found in it.
        history: of its job.
        checkpoints: of the job's folders, this one among them.
    """
    checkpoint = checkpoints[folder]
    newest = history.newest_generation
    match checkpoint.phase:
        case Phase.STORED | Phase.DELETED:
            return None  # the keeper is at it
        case Phase.COMPLETE:
            uploads = Content(uploads=content.uploads)
            return (
                Orphans(folder=folder, why=Why.STORED, content=uploads) if uploads.uploads else None
            )
        case Phase.PURGED:
            return Orphans(folder=folder, why=Why.DELETED, content=content)
        case Phase.COLLECTING:
            pass
    if not newest or folder.generation > newest:
        return None
    manifest = manifest_key(folder.job_id, folder.step, folder.generation)
    if manifest in content.keys and not checkpoint.job_id:
        return None
    if folder.generation < newest:
        return Orphans(folder=folder, why=Why.OVER, content=content)
    overtaken = any(
        other.generation == folder.generation and other.step > folder.step and one.manifest_uri
        for other, one in checkpoints.items()
    )
    why = Why.OVERTAKEN if overtaken else Why.IDLE
    return Orphans(folder=folder, why=why, content=content)


def due(
    orphans: Iterable[Orphans],
    since_ms: Mapping[Orphans, float],
    *,
    at_ms: float,
    times: SweepTimes,
) -> tuple[tuple[Orphans, ...], dict[Orphans, float]]:
    """Return what has been an orphan for long enough, and since when each one has been.

    One whose folder has changed is another one: its time begins anew.

    Args:
        orphans: of this look.
        since_ms: of the look before.
        at_ms: of a clock that never jumps.
        times: the graces.
    """
    since = {one: since_ms.get(one, at_ms) for one in orphans}
    grace_ms = dict.fromkeys(Why, times.grace_s * 1_000) | {Why.IDLE: times.idle_s * 1_000}
    gone = [one for one, first_ms in since.items() if at_ms - first_ms >= grace_ms[one.why]]
    return tuple(sorted(gone, key=lambda one: one.folder)), since


def folders_of(keys: Iterable[str], uploads: Iterable[PartialUpload]) -> dict[Folder, Content]:
    """Sort what was found into folders; what does not lie in one of ours is not ours."""
    found: dict[Folder, tuple[list[str], list[PartialUpload]]] = {}
    for key in keys:
        if (folder := _folder_of(key)) is not None:
            found.setdefault(folder, ([], []))[0].append(key)
    for upload in uploads:
        if (folder := _folder_of(upload.key)) is not None:
            found.setdefault(folder, ([], []))[1].append(upload)
    return {
        folder: Content(keys=tuple(sorted(keys_)), uploads=tuple(uploads_))
        for folder, (keys_, uploads_) in sorted(found.items())
    }


def in_order(folder: Folder, keys: Sequence[str]) -> list[list[str]]:
    """Return keys as they are to be removed: what says that the others are a checkpoint, first."""
    prefix = prefix_of(folder.job_id, folder.step, folder.generation)
    first = [manifest_key(folder.job_id, folder.step, folder.generation), prefix + METADATA_NAME]
    shards = [key for key in keys if key not in first]
    return [*([key] for key in first if key in keys), *([shards] if shards else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeping:
    """That a registry sweeps: where, and how patiently."""

    objects: MultipartStore
    times: SweepTimes = SweepTimes()


@dataclass(eq=False, slots=True)
class Sweep:
    """Looks at all objects again and again."""

    checkpoints: Handler[CheckpointCommand, Checkpoint, CheckpointEvent]
    histories: Handler[HistoryCommand, History, HistoryEvent]
    objects: MultipartStore
    clock: Clock
    times: SweepTimes
    _since_ms: dict[Orphans, float] = field(default_factory=dict)
    _seen_ms: dict[PartialUpload, float] = field(default_factory=dict)
    _trouble: str = ""

    async def run(self) -> None:
        """Sweep forever. Raises Unavailable when the database does not answer."""
        while True:
            await self.look()
            await asyncio.sleep(self.times.every_s)

    async def look(self) -> None:
        """Find orphans, and remove those that were found long enough ago."""
        try:
            orphans = await self._orphans()
            gone, self._since_ms = due(
                orphans, self._since_ms, at_ms=self.clock.monotonic_ms(), times=self.times
            )
            for one in gone:
                await self._remove(one)
        except Unavailable as error:
            if str(error) != self._trouble:
                _log.warning("orphans stay for now: %s", error)
            self._trouble = str(error)
            self._since_ms = {}  # uploads could not move either
        else:
            self._trouble = ""

    async def _orphans(self) -> list[Orphans]:
        keys = [info.key for info in await self.objects.list(ROOT)]
        uploads = await self.objects.unfinished_uploads(ROOT)
        self._seen_ms = {
            upload: self._seen_ms.get(upload, self.clock.monotonic_ms()) for upload in uploads
        }
        folders = folders_of(keys, uploads)
        found: list[Orphans] = []
        for job_id in sorted({folder.job_id for folder in folders}):
            found += await self._of_job({f: c for f, c in folders.items() if f.job_id == job_id})
        return found

    async def _of_job(self, folders: Mapping[Folder, Content]) -> list[Orphans]:
        job_id = next(iter(folders)).job_id
        history = await self.histories.state(history_stream(job_id))
        checkpoints = {
            folder: await self.checkpoints.state(
                checkpoint_stream(folder.job_id, folder.generation, folder.step)
            )
            for folder in folders
        }
        found: list[Orphans] = []
        for folder, content in folders.items():
            orphans = judge(folder, content, history, checkpoints)
            if orphans is not None and orphans.why is Why.IDLE:
                orphans = replace(orphans, content=await self._counted(content))
            if orphans is not None:
                found.append(orphans)
        return found

    async def _counted(self, content: Content) -> Content:
        """Count the parts of uploads that have been there for longer than most take."""
        counts = []
        for upload in content.uploads:
            old_ms = self.clock.monotonic_ms() - self._seen_ms[upload]
            if old_ms >= self.times.grace_s * 1_000:
                try:
                    counts.append(len(await self.objects.parts(upload)))
                except NotFoundError:
                    counts.append(-1)  # ended since it was listed
        return Content(keys=content.keys, uploads=content.uploads, part_counts=tuple(counts))

    async def _remove(self, orphans: Orphans) -> None:
        folder, content = orphans.folder, orphans.content
        if orphans.why in (Why.OVER, Why.OVERTAKEN, Why.IDLE):
            done = await self.checkpoints.handle(
                DeleteCheckpoint(
                    job_id=folder.job_id,
                    step=folder.step,
                    generation=folder.generation,
                    why=DELETED_OVER,
                    at_ms=self.clock.now_ms(),
                )
            )
            if done.rejected is not None:
                return  # whole since it was looked at
        _log.info(
            "%s: %d objects and %d unfinished uploads belong to nothing (%s): removed",
            prefix_of(folder.job_id, folder.step, folder.generation),
            len(content.keys),
            len(content.uploads),
            orphans.why,
        )
        for keys in in_order(folder, content.keys):
            for start in range(0, len(keys), DELETES_MAX):
                some = keys[start : start + DELETES_MAX]
                await asyncio.gather(*(self.objects.delete(key) for key in some))
        for upload in content.uploads:
            await self.objects.abort_upload(upload)


def _folder_of(key: str) -> Folder | None:
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    return Folder(job_id=match[1], step=int(match[2]), generation=int(match[3]))
