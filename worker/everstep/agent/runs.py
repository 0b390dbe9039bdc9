"""The runs on this host: what was started, how far each rank is, and what survives the agent.

One JSON file a job in the run directory, replaced atomically, so that an agent that comes back
knows the placement, what each rank was answered, and which ranks have ended. What changes every
step is not in it: ranks tell it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from everstep.agent.exits import Intent, LastWords
from everstep.core.corrections import NO_CORRECTIONS, Corrections
from everstep.core.placement import Layout
from everstep.core.schedule import Schedule
from everstep.memory.control import Control

RankKey = tuple[str, int, int]  # job, generation, rank
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]  # whose failure ends the agent


class SourceKind(StrEnum):
    """Spelled as ``SourceKind`` in common.proto."""

    OWN_MEMORY = "OWN_MEMORY"
    PEER_MEMORY = "PEER_MEMORY"
    OBJECT_STORE = "OBJECT_STORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place from which a rank's state can be loaded (``RestoreSource`` on the wire)."""

    kind: SourceKind
    host_id: str = ""
    address: str = ""
    peer_port: int = 0
    uri: str = ""
    checksum: str = ""
    bytes: int = 0
    generation: int = 0  # that wrote it; 0: any


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRestore:
    """A rank's sources in order of preference."""

    rank: int
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The host that keeps copies of this host's snapshots."""

    host_id: str
    address: str
    peer_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What ``StartRanks`` says to this host; of the placement only its own part.

    Args:
        job_id: which job.
        generation: fencing token.
        spec_json: the job spec.
        rendezvous_address: of the first rank's host.
        rendezvous_port: there.
        restore_step: -1 for a fresh start.
        world_size: ranks of the job.
        host_index: of this host in the placement.
        host_count: hosts in the placement.
        ranks: of this host, in chip order.
        peer: None when nobody keeps copies.
        replicas: ranks of other hosts whose copies lie here.
        restores: of this host's ranks.
        schedule: how often to snapshot, the newest that was told; None: as the spec says.
        corrections: what the run's course was changed by since it began.
        layout: of the job's ranks; None in records of older agents.
        old_layout: of the ranks that ``restores`` are of, if it is another one.
        lost: those of them of which there is nothing.
        restore_job_id: whose snapshots ``restores`` are; "": the job's own.
    """

    job_id: str
    generation: int
    spec_json: str
    rendezvous_address: str
    rendezvous_port: int
    restore_step: int
    world_size: int
    host_index: int
    host_count: int
    ranks: tuple[int, ...]
    peer: Peer | None
    replicas: tuple[int, ...] = ()
    restores: tuple[RankRestore, ...] = ()
    schedule: Schedule | None = None
    corrections: Corrections = NO_CORRECTIONS
    layout: Layout | None = None
    old_layout: Layout | None = None
    lost: tuple[int, ...] = ()
    restore_job_id: str = ""

    def restore_of(self, rank: int) -> RankRestore:
        """Return a rank's sources, none if the plan has none."""
        return next((one for one in self.restores if one.rank == rank), RankRestore(rank=rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A source that could not be used, and why; the fields of ``RefusedSource`` on the wire."""

    step: int
    kind: str
    host_id: str = ""
    uri: str = ""
    detail: str = ""
    rank: int | None = None  # whose, if one of another layout


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSlot:
    """The snapshot of a rank of another layout, where it lies, and how it came there."""

    rank: int
    path: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a rank's hello is answered with.

    ``slot_ready``, ``slots_ready`` (of ranks of ``old_layout``), ``fresh`` or ``restore_failed``.
    ``path`` is that of the slot.
    """

    kind: str
    step: int = -1
    slot: int = -1
    source_kind: str = ""
    problems: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    path: str = ""
    slots: tuple[OldSlot, ...] = ()
    old_layout: Layout | None = None
    new_layout: Layout | None = None
    lost: tuple[int, ...] = ()

    def frame(self) -> dict[str, Any]:
        """Return it as a frame."""
        frame: dict[str, Any] = msgspec.to_builtins(self)
        return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What must be known of a rank after the agent's restart; ``pid`` is 0 before its fork."""

    rank: int
    pid: int = 0
    answer: Answer | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One job's file. ``seek_position`` is -1 when the ranks begin where their step says."""

    start: Start
    seek_position: int
    ranks: tuple[RankRecord, ...]
    broken: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class RankRun:
    """A rank of this host in one generation."""

    rank: int
    control: Control
    pid: int = 0
    answer: Answer | None = None
    last_step: int = -1
    words: LastWords | None = None
    intent: Intent = Intent.RUN
    exit_seen: bool = False  # the kernel's word is here; the last words may still be on their way
    snapshots_count: int = 0  # taken in this generation
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def alive(self) -> bool:
        """Whether the rank is still to be expected: forked or about to be."""
        return not self.gone.is_set()


@dataclass(eq=False, slots=True, kw_only=True)
class JobRun:
    """The newest generation of a job on this host."""

    start: Start
    seek_position: int
    ranks: dict[int, RankRun]
    log_dir: Path
    tidied: bool = False  # what an earlier placement left here is removed
    stop_by_s: float = 0.0  # on the event loop's clock, once its ranks were asked to stop
    waits_to_store: bool = False  # they have nothing left to do but that; said once
    # A rank has gone in the middle of a step: there will be no last one that all make together.
    broken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def job_id(self) -> str:
        """Whose."""
        return self.start.job_id

    @property
    def generation(self) -> int:
        """Which."""
        return self.start.generation

    def key(self, rank: RankRun) -> RankKey:
        """Return the name of one of its ranks."""
        return (self.job_id, self.generation, rank.rank)

    def log_path(self, rank: RankRun) -> Path:
        """Return where one of its ranks writes what it prints."""
        return self.log_dir / f"rank-{rank.rank}.log"

    @property
    def alive(self) -> list[RankRun]:
        """Ranks that have not ended, in order."""
        return [rank for _, rank in sorted(self.ranks.items()) if rank.alive]

    @property
    def last_step(self) -> int:
        """Return the newest step that all of this host's ranks have completed, -1 for none."""
        return min((rank.last_step for rank in self.ranks.values()), default=-1)

    async def wait_gone(self, timeout_s: float) -> bool:
        """Wait until every rank has ended; False when one has not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                for rank in self.ranks.values():
                    await rank.gone.wait()
        except TimeoutError:
            return False
        return True

    async def wait_left(self, timeout_s: float) -> bool:
        """Wait as ``wait_gone``, but not for ranks that wait for one that broke off."""
        gone = asyncio.create_task(self.wait_gone(timeout_s))
        broken = asyncio.create_task(self.broken.wait())
        try:
            await asyncio.wait({gone, broken}, return_when=asyncio.FIRST_COMPLETED)
            return gone.done() and gone.result()
        finally:
            gone.cancel()
            broken.cancel()

    def record(self) -> RunRecord:
        """Return what to store."""
        return RunRecord(
            start=self.start,
            seek_position=self.seek_position,
            ranks=tuple(
                RankRecord(rank=one.rank, pid=one.pid, answer=one.answer, ended=not one.alive)
                for _, one in sorted(self.ranks.items())
            ),
            broken=self.broken.is_set(),
        )


class Runs:
    """The newest run of each job on this host, and its file."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._runs: dict[str, JobRun] = {}

    def add(self, run: JobRun) -> None:
        """Put a run in the place of its job's older one."""
        self._runs[run.job_id] = run
        self.files.save(run)

    def get(self, job_id: str) -> JobRun | None:
        """Return a job's run."""
        return self._runs.get(job_id)

    def all(self) -> list[JobRun]:
        """Return every run, by job."""
        return [run for _, run in sorted(self._runs.items())]

    def find(self, key: RankKey) -> tuple[JobRun, RankRun] | None:
        """Return a rank of a current generation; None for an older one's or a stranger."""
        job_id, generation, number = key
        run = self._runs.get(job_id)
        rank = run.ranks.get(number) if run is not None else None
        if run is None or rank is None or run.generation != generation:
            return None
        return run, rank

    def save(self, run: JobRun) -> None:
        """Store what has changed, unless a newer generation has taken the place."""
        if self._runs.get(run.job_id) is run:
            self.files.save(run)

    def forget(self, job_id: str) -> None:
        """Drop a job."""
        self._runs.pop(job_id, None)
        self.files.delete(job_id)


class RunFiles:
    """The JSON files, one a job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, run: JobRun) -> None:
        """Replace the job's file; a few kB that need not outlive the host, so no fsync."""
        path = self._path(run.job_id)
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(run.record()))
        temporary.replace(path)

    def load(self) -> list[RunRecord]:
        """Return every job's record, by job."""
        return [
            msgspec.json.decode(path.read_bytes(), type=RunRecord)
            for path in sorted(self._directory.glob("*.json"))
        ]

    def delete(self, job_id: str) -> None:
        """Forget a job."""
        self._path(job_id).unlink(missing_ok=True)
        self._seek_path(job_id).unlink(missing_ok=True)

    def save_seek(self, job_id: str, generation: int, position: int) -> None:
        """Keep where the next start should begin; only the newest counts."""
        self._seek_path(job_id).write_bytes(msgspec.json.encode((generation, position)))

    def take_seek(self, job_id: str, generation: int) -> int:
        """Return where a start of ``generation`` should begin, -1 for where its step says."""
        path = self._seek_path(job_id)
        if not path.exists():
            return -1
        asked, position = msgspec.json.decode(path.read_bytes(), type=tuple[int, int])
        if generation < asked:
            return -1
        path.unlink()
        return position

    def _seek_path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.seek"

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.json"
