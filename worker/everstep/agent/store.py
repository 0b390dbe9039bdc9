"""Knows which snapshots lie in this host's memory, and who may write them.

The files are the truth: nothing is cached but what protects them. Two rules live here. The
generation fence: a writer of an older generation is refused, and one that is already writing is cut
off and waited for before anybody is told that the host is fenced. One writer a directory: the
newest wins, because an older connection for the same rank is one whose sender has given up.

Writers are threads (network, object store), so this class is thread-safe; nothing in it blocks but
``writing`` and ``wait_quiet``. The files of copies stay mapped between two pushes (``slot_file``);
who takes a file away lets go of its mapping, or its memory would stay taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everstep.agent import cuts
from everstep.core.errors import RefusedError, Unavailable
from everstep.core.placement import Layout
from everstep.memory import layout
from everstep.memory.room import HEADROOM_BYTES
from everstep.memory.slot import VALID_OFFSET, Preamble, read_preamble
from everstep.memory.slot_file import SlotFile

# A header's size changes a little from step to step; the mapping need not be made anew for that.
HEADER_SLACK_BYTES: Final = 64 * 1024
# A cut-off writer ends when its socket does or, at worst, when it has checksummed one slot.
CUT_OFF_S_MAX: Final = 10.0
# Jobs that are over and must not come back by a late message; far more than one host serves a day.
FORGOTTEN_COUNT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A complete snapshot in this host's memory."""

    rank: int
    own: bool
    slot: int
    path: Path
    preamble: Preamble

    @property
    def step(self) -> int:
        """Completed optimizer steps."""
        return self.preamble.step


@dataclass(eq=False, slots=True, kw_only=True)
class _Writer:
    job_id: str
    generation: int
    directory: Path
    cut_off: Callable[[], None]


class HostMemory:
    """All snapshots under one directory.

    Args:
        root: the host's memory directory.
        forgotten_path: where jobs that are over are remembered, outside of ``root``.
    """

    def __init__(self, root: Path, forgotten_path: Path) -> None:
        self.root = root
        self._forgotten_path = forgotten_path
        self._forgotten = _load_forgotten(forgotten_path)
        self._writers: set[_Writer] = set()
        self._mapped: dict[Path, SlotFile] = {}  # those that nobody receives into at the moment
        self._changed = threading.Condition()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for trash in root.glob(".trash-*"):  # a removal that an earlier agent did not finish
            shutil.rmtree(trash, ignore_errors=True)

    def jobs(self) -> list[str]:
        """Return the jobs that have anything here, sorted."""
        return sorted(
            path.name
            for path in self.root.glob("*")  # none if all was taken away: the next writer makes it
            if path.is_dir() and not path.name.startswith(".")
        )

    def kept(self) -> list[tuple[str, int]]:
        """Return the jobs of ``jobs`` that this host was not told to forget.

        Each with the generation at which this host was fenced for it last; 0 when it never was.
        """
        fences = [(job_id, layout.read_fence(self.root, job_id)) for job_id in self.jobs()]
        forgotten = self._forgotten
        return [
            (job_id, max(fence, 0))
            for job_id, fence in fences
            if job_id not in forgotten or fence > forgotten[job_id]
        ]

    def fence(self, job_id: str) -> int:
        """Return the lowest generation that may act here, -1 when any may."""
        return max(layout.read_fence(self.root, job_id), self._forgotten.get(job_id, -1))

    def raise_fence(self, job_id: str, generation: int) -> None:
        """Refuse older generations from now on and cut off their writers; see ``wait_quiet``."""
        with self._changed:
            layout.write_fence(self.root, job_id, generation)
            old = [one for one in self._writers if one.job_id == job_id]
            for writer in old:
                if writer.generation < generation:
                    writer.cut_off()

    def wait_quiet(self, job_id: str, generation: int) -> bool:
        """Wait until no writer of an older generation is left; False when one hangs."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    not any(
                        one.job_id == job_id and one.generation < generation
                        for one in self._writers
                    )
                ),
                timeout=CUT_OFF_S_MAX,
            )

    @contextlib.contextmanager
    def writing(
        self, job_id: str, generation: int, directory: Path, cut_off: Callable[[], None]
    ) -> Iterator[None]:
        """Hold a rank's directory for writing; choose the slot (``slot_for``) inside.

        Args:
            job_id: whose snapshot.
            generation: on whose behalf; not the one that wrote the snapshot.
            directory: of the rank's own snapshots or of the copies.
            cut_off: called from another thread to make this writer end soon.

        Raises:
            RefusedError: ``stale_generation``.
            Unavailable: an older writer does not end.
        """
        writer = _Writer(job_id=job_id, generation=generation, directory=directory, cut_off=cut_off)
        with self._changed:
            self._refuse_stale(job_id, generation)
            for other in self._writers:
                if other.directory == directory:
                    other.cut_off()
            free = self._changed.wait_for(
                lambda: all(other.directory != directory for other in self._writers),
                timeout=CUT_OFF_S_MAX,
            )
            if not free:
                raise Unavailable(f"{directory}: another writer has not ended in {CUT_OFF_S_MAX} s")
            self._refuse_stale(job_id, generation)
            self._writers.add(writer)
        try:
            yield
        finally:
            with self._changed:
                self._writers.discard(writer)
                self._changed.notify_all()

    @contextlib.contextmanager
    def slot_file(self, path: Path, size_bytes: int) -> Iterator[SlotFile]:
        """Lend a slot file, mapped; it stays so for the next snapshot that comes into it.

        Only within ``writing`` of its directory.

        Raises:
            CorruptData: no snapshot is so small.
            Unavailable: there is not enough memory for it.
        """
        with self._changed:
            file = self._mapped.pop(path, None)
        if file is not None and not file.is_still(path, size_bytes):
            file.close()
            file = None
        if file is None:
            file = SlotFile(path, size_bytes + HEADER_SLACK_BYTES)
        try:
            yield file
        finally:
            with self._changed:
                if file.is_still(path, 0):
                    self._mapped[path] = file
                else:
                    file.close()

    def adopt(self, held: Held, path: Path) -> None:
        """Make a copy a rank's own snapshot, at ``path``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        held.path.replace(path)
        self._unmap(held.path)

    def held(self, job_id: str) -> list[Held]:
        """Return the complete snapshots of a job, sorted by owner, rank and slot.

        Also those of ranks of other layouts, at the end of each owner's.
        """
        found: list[Held] = []
        for own in (True, False):
            for rank, directory in cuts.all_homes(self.root, job_id, own=own):
                found += held_in(directory, rank, own=own)
        return found

    def find(
        self, job_id: str, rank: int, step: int, *, own: bool, generation: int = 0
    ) -> Held | None:
        """Return the snapshot of one step, None if it is not here.

        Args:
            job_id: whose.
            rank: whose.
            step: which.
            own: the rank's own, or the copy kept for a peer's rank.
            generation: that wrote it; 0 for any. After a rollback two may hold the same step, and
                only one of them is of the present history. It also tells the layout of the rank.
        """
        for directory in cuts.homes(self.root, job_id, rank, own=own):
            for one in held_in(directory, rank, own=own):
                if one.step == step and generation in {0, one.preamble.generation}:
                    return one
        return None

    def newest(self, job_id: str, rank: int) -> Held | None:
        """Return a rank's own newest snapshot."""
        directory = self.directory(job_id, rank, own=True)
        return max(held_in(directory, rank, own=True), key=lambda one: one.step, default=None)

    def directory(self, job_id: str, rank: int, *, own: bool) -> Path:
        """Return where a rank's own snapshots, or the copies kept for a peer's rank, lie."""
        named = layout.rank_dir if own else layout.replica_dir
        return named(self.root, job_id, rank)

    def slot_for(self, job_id: str, rank: int, step: int, *, own: bool) -> Path:
        """Return the slot file that a snapshot of ``step`` should replace."""
        directory = self.directory(job_id, rank, own=own)
        return slot_among(held_in(directory, rank, own=own), directory, step)

    def require_room(self, path: Path, size_bytes: int) -> None:
        """Check that a slot of this size fits.

        Raises:
            RefusedError: ``no_space``.
        """
        there = path.stat().st_size if path.exists() else 0
        status = os.statvfs(self.root)
        free = status.f_bavail * status.f_frsize
        needed = max(0, size_bytes - there) + HEADROOM_BYTES
        if size_bytes > there and free < needed:
            raise RefusedError(
                "no_space",
                f"{self.root} has {free} bytes free; a snapshot of {size_bytes} bytes needs "
                f"{needed}: give the memory directory more room",
            )

    def set_aside(self, job_id: str, generation: int, layout: Layout) -> None:
        """Make way for ranks of ``layout``, if those of another one have left snapshots here."""
        for directory in cuts.set_aside(self.root, job_id, generation, layout):
            self._unmap(directory)

    def old_directory(self, job_id: str, generation: int, rank: int) -> Path:
        """Return where the snapshot of a rank of another layout is brought."""
        return layout.old_dir(self.root, job_id, generation) / f"rank-{rank}"

    def forget_after(self, job_id: str, step: int) -> None:
        """Drop snapshots of later steps: a generation that begins at ``step`` rewrites them."""
        for one in self.held(job_id):
            if one.step > step:
                invalidate(one.path)

    def drop_strangers(
        self, job_id: str, generation: int, own: frozenset[int], replicas: frozenset[int]
    ) -> None:
        """Remove what an earlier placement left here: ranks that now live or are kept elsewhere.

        And what ranks of another layout left.
        Nothing once a later generation is under way: what is strange to this one may be all that
        the next one has.
        """
        for keep, mine in ((own, True), (replicas, False)):
            for rank, directory in layout.ranks_in(self.root, job_id, own=mine):
                if rank not in keep:
                    self._remove(directory, unless=lambda: self.fence(job_id) > generation)
        for directory in layout.old_dirs(self.root, job_id):
            self._remove(directory, unless=lambda: self.fence(job_id) > generation)

    def retire(self, job_id: str, generation: int) -> None:
        """Note that a job is over: nothing up to this generation ever acts here again.

        A person may begin the job again with a later one.
        """
        lowest = max(generation + 1, layout.read_fence(self.root, job_id))
        with self._changed:
            self._forgotten.pop(job_id, None)  # to the end: the oldest are dropped first
            self._forgotten[job_id] = lowest
            while len(self._forgotten) > FORGOTTEN_COUNT_MAX:
                self._forgotten.pop(next(iter(self._forgotten)))
            self._save_forgotten()

    def begin_again(self, job_id: str, generation: int) -> None:
        """Fence for a job that goes on; if it was over, what is here of it is wanted again."""
        self.raise_fence(job_id, generation)  # first: it is what refuses the older ones then
        with self._changed:
            if self._forgotten.get(job_id, generation + 1) <= generation:
                self._forgotten.pop(job_id)
                self._save_forgotten()

    def is_retired(self, job_id: str, generation: int) -> bool:
        """Say whether a job was over at this generation or a later one."""
        return generation < self._forgotten.get(job_id, -1)

    def forget(self, job_id: str, generation: int) -> None:
        """Remove everything of a job that was over at ``generation``, unless it began again."""
        directory = layout.job_dir(self.root, job_id)
        self._remove(directory, unless=lambda: not self.is_retired(job_id, generation))

    def _remove(self, directory: Path, unless: Callable[[], bool] = lambda: False) -> None:
        """Take a directory away at once, and free its memory; ``unless`` holds for as long."""
        trash = Path(tempfile.mkdtemp(prefix=".trash-", dir=self.root))
        with self._changed, contextlib.suppress(FileNotFoundError):
            if not unless():
                directory.replace(trash / directory.name)
        self._unmap(directory)
        shutil.rmtree(trash, ignore_errors=True)

    def _unmap(self, path: Path) -> None:
        """Let go of a file that was taken away, or of all below a directory.

        Whoever receives into one of them finds at the end that it is not there any more.
        """
        with self._changed:
            for other in [one for one in self._mapped if one.is_relative_to(path)]:
                self._mapped.pop(other).close()

    def _save_forgotten(self) -> None:
        temporary = self._forgotten_path.with_suffix(".new")
        temporary.write_text(json.dumps(self._forgotten))
        temporary.replace(self._forgotten_path)

    def _refuse_stale(self, job_id: str, generation: int) -> None:
        lowest = self.fence(job_id)
        if generation < lowest:
            raise RefusedError(
                "stale_generation",
                f"job {job_id} is fenced at generation {lowest} here; got generation {generation}",
            )


def held_in(directory: Path, rank: int, *, own: bool) -> list[Held]:
    """Return the complete snapshots of one directory, by slot."""
    found: list[Held] = []
    for slot in range(layout.SLOT_COUNT):
        path = layout.slot_path(directory, slot)
        preamble = read_preamble(path)
        if preamble is not None:
            found.append(Held(rank=rank, own=own, slot=slot, path=path, preamble=preamble))
    return found


def slot_among(held: Sequence[Held], directory: Path, step: int) -> Path:
    """Return the slot file that a snapshot of ``step`` should replace, of a directory."""
    return layout.slot_path(directory, choose_slot({one.slot: one.step for one in held}, step))


def choose_slot(steps: dict[int, int], step: int) -> int:
    """Say which slot a snapshot of ``step`` replaces.

    The one of the same step, else an empty one, else the one of the older step: the newest other
    snapshot stays, because it may be the only one that all ranks have.
    """
    for slot, other in sorted(steps.items()):
        if other == step:
            return slot
    for slot in range(layout.SLOT_COUNT):
        if slot not in steps:
            return slot
    return min(steps, key=lambda slot: (steps[slot], slot))


def invalidate(path: Path) -> None:
    """Take a snapshot's valid flag away."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b", buffering=0) as file:
        file.seek(VALID_OFFSET)
        file.write(b"\0\0\0\0")


def _load_forgotten(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return {str(job_id): int(generation) for job_id, generation in found.items()}
