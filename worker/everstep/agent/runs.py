"""The runs on this host: what was started, how far each rank is, and what survives the agent.

One JSON file a job in the run directory, replaced atomically, so that an agent that comes back
knows the placement, what each rank was answered, and which ranks have ended. What changes every
step is not in it: ranks tell it again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from everstep.agent.exits import Intent, LastWords
from everstep.core.placement import HostPlacement, Placement
from everstep.memory.control import Control


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRestore:
    """A rank's sources in order of preference."""

    rank: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What ``StartRanks`` says; the field names are the wire's."""

    job_id: str
    generation: int
    spec_json: str
    placement: Placement
    rendezvous_address: str
    rendezvous_port: int
    restore_step: int
    restores: tuple[RankRestore, ...] = ()

    def host(self, host_id: str) -> HostPlacement | None:
        """Return a host's part of the placement."""
        return next((one for one in self.placement.hosts if one.host_id == host_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a rank's hello is answered with: ``slot_ready``, ``fresh`` or ``restore_failed``."""

    kind: str
    step: int = -1
    slot: int = -1
    source_kind: str = ""
    problems: tuple[str, ...] = ()

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


@dataclass(eq=False, slots=True, kw_only=True)
class RankRun:
    """A rank of this host in one generation."""

    rank: int
    chip: int
    control: Control
    pid: int = 0
    answer: Answer | None = None
    last_step: int = -1
    words: LastWords | None = None
    intent: Intent = Intent.RUN
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

    @property
    def job_id(self) -> str:
        """Whose."""
        return self.start.job_id

    @property
    def generation(self) -> int:
        """Which."""
        return self.start.generation

    @property
    def alive(self) -> list[RankRun]:
        """Ranks that have not ended, in order."""
        return [rank for _, rank in sorted(self.ranks.items()) if rank.alive]

    @property
    def last_step(self) -> int:
        """Return the newest step that all of this host's ranks have completed, -1 for none."""
        return min((rank.last_step for rank in self.ranks.values()), default=-1)

    def record(self) -> RunRecord:
        """Return what to store."""
        return RunRecord(
            start=self.start,
            seek_position=self.seek_position,
            ranks=tuple(
                RankRecord(rank=one.rank, pid=one.pid, answer=one.answer, ended=not one.alive)
                for _, one in sorted(self.ranks.items())
            ),
        )


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

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.json"
