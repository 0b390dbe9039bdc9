"""What may be asked of the registry; names as in ``proto/everstep/v1/checkpoints.proto``.

Those that are in it come over the wire; fields that they do not have there are facts of other
streams, which the shell looks up. The others are the registry's own process managers'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.checkpoint_registry.events import KEEP_DAYS_DEFAULT, Shard
from everstep.core.placement import Layout
from everstep.core.record import Record

DELETED_OVER: Final = "over"  # why a checkpoint goes that nobody can complete any more


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportShards:
    """An agent has uploaded its ranks' shards of one step.

    Not on the wire are ``newest_generation``, the newest one known of the job (0: none), and
    ``kept_to_step``, the newest step of the report's own one that those after it went on from (-1:
    none of them has a plan).
    """

    job_id: str
    step: int
    generation: int
    host_id: str
    world_size: int
    shards: tuple[Shard, ...]
    data_state: str
    at_ms: int
    newest_generation: int = 0
    kept_to_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeReports:
    """Reports to one checkpoint that arrived together, decided one after the other.

    Whoever is refused is left out: the answer to each report is what it would be told now.
    """

    job_id: str
    step: int
    generation: int
    reports: tuple[ReportShards, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseShard:
    """What lies under ``uri`` is not the object of ``checksum`` that was reported."""

    job_id: str
    step: int
    generation: int
    uri: str
    checksum: str
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCheckpoint:
    """These shards (sorted by rank) were read back, and the manifest of them is written."""

    job_id: str
    step: int
    generation: int
    shards: tuple[Shard, ...]
    manifest_uri: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoint:
    """Make the checkpoint unusable, so that its objects may go."""

    job_id: str
    step: int
    generation: int
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotePurge:
    """The objects of a deleted checkpoint are gone."""

    job_id: str
    step: int
    generation: int
    at_ms: int


class HeldSnapshots(Record, frozen=True, kw_only=True):
    """One step's snapshots in a host's memory: the ranks' own, or replicas kept for a peer.

    ``ranks`` are sorted.
    """

    step: int
    generation: int
    own: bool
    ranks: tuple[int, ...]


class HostHoldings(Record, frozen=True, kw_only=True):
    """What a fenced host holds; nothing is written there after it told."""

    host_id: str
    address: str
    peer_port: int
    held: tuple[HeldSnapshots, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteFacts:
    """A complete checkpoint; ``shards`` are all ranks', sorted."""

    step: int
    generation: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A checkpoint that is not deleted: of ``world_size`` ranks, ``stored`` shards are reported."""

    step: int
    generation: int
    complete: bool
    completed_ms: int = 0
    stored: int = 0
    world_size: int = 0

    @property
    def whole(self) -> bool:
        """Whether every rank's shard is reported."""
        return 0 < self.world_size == self.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRestore:
    """Say where every rank of the generation gets its state from.

    Only states from before ``before_step`` will do (0: any). ``layout`` is the generation's (None:
    nobody has said that it ever changed). Not on the wire: ``checkpoints``, the job's complete
    ones, and ``unfinished``, the others that are not deleted.
    """

    job_id: str
    generation: int
    world_size: int
    holdings: tuple[HostHoldings, ...]
    from_step: int
    at_ms: int
    checkpoints: tuple[CompleteFacts, ...] = ()
    unfinished: tuple[Known, ...] = ()
    before_step: int = 0
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteJob:
    """The controller has taken a job; its fields are those of ``JobNoted``."""

    job_id: str
    keep_last: int
    layout: Layout
    at_ms: int
    keep_days: int = KEEP_DAYS_DEFAULT
    unseen_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteGeneration:
    """The controller has begun a generation, from a step that a person named (-1: from none)."""

    job_id: str
    generation: int
    at_ms: int
    from_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DistrustSource:
    """A host could not use this copy while it restored ``generation``."""

    job_id: str
    generation: int
    rank: int
    step: int
    host_id: str
    uri: str
    detail: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteIncident:
    """The monitor has opened a numerical incident; ``step`` is the newest completed one.

    ``from_step`` is the first step whose state it holds for suspect; 0: the kind says how far back.
    """

    job_id: str
    incident_id: str
    kind: str
    generation: int
    step: int
    why: str
    at_ms: int
    from_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteIncidentEnd:
    """An incident is over: the job has recovered from it, or has ended with it."""

    job_id: str
    incident_id: str
    recovered: bool
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectSteps:
    """Restore nothing of these steps; see ``CheckpointsSuspected``.

    ``generation`` 0 is the newest known; ``suspicion_id`` "" is one that follows from the span.
    """

    job_id: str
    suspicion_id: str
    generation: int
    from_step: int
    to_step: int
    why: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSuspicion:
    """A suspicion is dealt with, or was a false alarm: then nothing of it was bad."""

    job_id: str
    suspicion_id: str
    false_alarm: bool
    why: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideTrust:
    """Say that a checkpoint is clean, suspect or verified.

    ``phase`` is not on the wire: how far the checkpoint is ("": there is none).
    """

    job_id: str
    step: int
    generation: int
    trust: str
    why: str
    by: str
    at_ms: int
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteCheck:
    """Somebody has read a checkpoint again, all of it if ``whole``; see ``CheckpointChecked``.

    ``phase`` as in ``DecideTrust``; ``world_size`` is looked up with it.
    """

    job_id: str
    step: int
    generation: int
    bad_ranks: tuple[int, ...]
    whole: bool
    why: str
    by: str
    at_ms: int
    phase: str = ""
    world_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PinCheckpoint:
    """Keep a checkpoint until it is unpinned; ``phase`` as in ``DecideTrust``."""

    job_id: str
    step: int
    generation: int
    note: str
    by: str
    at_ms: int
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinCheckpoint:
    """Let retention give a checkpoint up again."""

    job_id: str
    step: int
    generation: int
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinOut:
    """Give up what need not be kept of the job's checkpoints that are not deleted."""

    job_id: str
    known: tuple[Known, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropJobCheckpoints:
    """Delete every checkpoint of the job."""

    job_id: str
    at_ms: int


CheckpointCommand = (
    ReportShards | TakeReports | RefuseShard | CompleteCheckpoint | DeleteCheckpoint | NotePurge
)
JudgingCommand = (
    NoteIncident
    | NoteIncidentEnd
    | SuspectSteps
    | EndSuspicion
    | DecideTrust
    | NoteCheck
    | PinCheckpoint
    | UnpinCheckpoint
    | ThinOut
)
HistoryCommand = PlanRestore | NoteJob | NoteGeneration | DistrustSource | JudgingCommand
