"""What may be asked of the registry; names as in ``proto/everstep/v1/checkpoints.proto``.

``ReportShards``, ``PlanRestore`` and ``DropJobCheckpoints`` come over the wire; fields that they do
not have there are facts of other streams, which the shell looks up. The others are the registry's
own process managers'.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.checkpoint_registry.events import Shard
from everstep.core.placement import Layout
from everstep.core.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportShards:
    """An agent has uploaded its ranks' shards of one step.

    ``newest_generation`` is not on the wire: the newest one known of the job (0: none).
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
class PlanRestore:
    """Say where every rank of the generation gets its state from.

    ``checkpoints`` is not on the wire: the job's complete checkpoints.
    """

    job_id: str
    generation: int
    world_size: int
    holdings: tuple[HostHoldings, ...]
    from_step: int
    at_ms: int
    checkpoints: tuple[CompleteFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteJob:
    """The controller has taken a job."""

    job_id: str
    keep_last: int
    layout: Layout
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteGeneration:
    """The controller has begun a generation."""

    job_id: str
    generation: int
    at_ms: int


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
class DropJobCheckpoints:
    """Delete every checkpoint of the job."""

    job_id: str
    at_ms: int


CheckpointCommand = (
    ReportShards | TakeReports | RefuseShard | CompleteCheckpoint | DeleteCheckpoint | NotePurge
)
HistoryCommand = PlanRestore | NoteJob | NoteGeneration | DistrustSource
