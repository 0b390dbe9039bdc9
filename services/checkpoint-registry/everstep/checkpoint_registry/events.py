"""What has happened to checkpoints and restores, in the words of ``checkpoints.proto``.

What is in ``checkpoints.proto`` is published. The rest are the registry's own notes: what it has
learnt of a job, the whole of a restore plan (too large for a message that only tells of it), what
retention gives up, and that the objects of a deleted checkpoint are gone. Times are milliseconds
since the epoch, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core.placement import Layout
from everstep.core.record import Record

KEEP_DAYS_DEFAULT: Final = 7  # as core.spec.CheckpointSpec; of jobs noted before there were days


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One rank's state as an object; ``checksum`` is the xxh3-128 of all its bytes, in hex."""

    rank: int
    uri: str
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsStored:
    """Agents of these hosts say that these ranks' shards lie in the object store.

    One event for all reports that arrive together: 2,048 events for one checkpoint, each stored,
    projected and published, take half a minute (benchmarks/registry.py). ``hosts`` and ``shards``
    are sorted; ``at_ms`` is the last report's.
    """

    job_id: str
    step: int
    generation: int
    hosts: tuple[str, ...]
    world_size: int
    shards: tuple[Shard, ...]
    data_state: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsRefused:
    """What lies under ``uri`` is not what was reported; the rank has to upload again."""

    job_id: str
    step: int
    generation: int
    uri: str
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCompleted:
    """Every shard was read back and the manifest is written: usable from here on."""

    job_id: str
    step: int
    generation: int
    manifest_uri: str
    bytes: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeleted:
    """Not usable any more; its objects are being removed."""

    job_id: str
    step: int
    generation: int
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlanned:
    """The generation goes on from ``step`` (-1: from nothing); ranks by their preferred source."""

    job_id: str
    generation: int
    step: int
    own_memory: int
    peer_memory: int
    object_store: int
    passed_over: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPurged:
    """No object of the deleted checkpoint is left."""

    job_id: str
    step: int
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNoted:
    """A job exists; its last ``keep_last`` checkpoints are kept, and one a day of ``keep_days``.

    Wrong work is taken to be found within ``unseen_steps`` (0: nobody looks for it).
    """

    job_id: str
    keep_last: int
    layout: Layout
    at_ms: int
    keep_days: int = KEEP_DAYS_DEFAULT
    unseen_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationNoted:
    """The job has begun this generation: shards of older ones come too late.

    ``from_step`` is the step that a person goes back to with it; -1: none was named.
    """

    job_id: str
    generation: int
    at_ms: int
    from_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDistrusted:
    """A copy of a rank's state could not be used in ``generation``: it is not offered again.

    ``host_id`` for a copy in memory, ``uri`` for a stored object; the other is "".
    """

    job_id: str
    generation: int
    rank: int
    step: int
    host_id: str
    uri: str
    detail: str
    at_ms: int


class Holder(Record, frozen=True, kw_only=True):
    """A host whose memory holds snapshots that ``generation`` wrote, and where it is reached.

    ``own`` are the ranks whose own snapshots lie there, ``replicas`` those of which it keeps a
    copy.
    """

    host_id: str
    address: str
    peer_port: int
    generation: int
    own: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreLaidOut:
    """The whole plan, so that asking again gives the same answer.

    By holder and not by rank: 16,384 ranks written out would be megabytes. A rank's sources, by
    preference: its own snapshot, replicas of it, each in the order of ``holders`` (the newest
    writer first), then its shard. ``shards`` (sorted by rank, or empty) are the step's checkpoint,
    of ``shards_generation``.

    ``layout`` is the generation's. With ``old_layout`` all ranks named here, and ``world_size``,
    are of that one, and ``lost`` are those of which there is nothing.
    """

    job_id: str
    generation: int
    step: int
    world_size: int
    holders: tuple[Holder, ...]
    shards: tuple[Shard, ...]
    shards_generation: int
    at_ms: int
    layout: Layout | None = None
    old_layout: Layout | None = None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsSuspected:
    """Snapshots and checkpoints of these steps may be bad: none of them is restored.

    It is about what generations up to ``generation`` did at ``from_step`` and later, up to
    ``to_step`` (-1: up to whatever they come to). ``kind`` is the incident's, or ``by_hand``.
    """

    job_id: str
    suspicion_id: str
    kind: str
    generation: int
    from_step: int
    to_step: int
    why: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspicionEnded:
    """What became of a suspicion; ``outcome`` is one of ``trust.Ending``."""

    job_id: str
    suspicion_id: str
    outcome: str
    why: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustDecided:
    """A person, or a check of the state, has said what it is: ``trust`` is one of ``Trust``."""

    job_id: str
    step: int
    generation: int
    trust: str
    why: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPinned:
    """Retention leaves the checkpoint alone until it is unpinned."""

    job_id: str
    step: int
    generation: int
    note: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointUnpinned:
    """Retention may give the checkpoint up again."""

    job_id: str
    step: int
    generation: int
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A checkpoint to delete; ``why`` is one of ``retention.Reason``."""

    step: int
    generation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalsDecided:
    """Retention gives these up: no plan takes them from here on, and nobody can pin them.

    Decided in the job's history and not at each checkpoint, so that a plan, a pin or a suspicion
    that comes at the same moment is either before it, and counts, or behind it, and knows of it.
    """

    job_id: str
    removals: tuple[Removal, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointChecked:
    """Somebody has read a complete checkpoint's objects again.

    Those of ``bad_ranks`` (sorted) are not what was stored, ``why`` says in what way: no restore
    takes them. With ``whole`` every object was read, and what was held against them before no
    longer counts.
    """

    job_id: str
    step: int
    generation: int
    bad_ranks: tuple[int, ...]
    whole: bool
    why: str
    by: str
    at_ms: int


CheckpointEvent = (
    ShardsStored | ShardsRefused | CheckpointCompleted | CheckpointDeleted | CheckpointPurged
)
HistoryEvent = (
    JobNoted
    | GenerationNoted
    | SourceDistrusted
    | RestoreLaidOut
    | RestorePlanned
    | CheckpointsSuspected
    | SuspicionEnded
    | TrustDecided
    | CheckpointPinned
    | CheckpointUnpinned
    | RemovalsDecided
    | CheckpointChecked
)
