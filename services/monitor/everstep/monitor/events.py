"""What the monitor has seen and concluded. Field names are those of ``incidents.proto``.

Echoes of a failure (thousands of collective errors) are measurements and stay out; a rank's end and
every conclusion are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.corrections import PositionRange
from everstep.core.placement import Layout
from everstep.core.record import Record
from everstep.monitor.ties import Tie


class Action(StrEnum):
    """What the controller should do about an incident."""

    RESTART = "RESTART"
    REPLACE = "REPLACE"  # the hosts are lost
    FAIL = "FAIL"
    REPLACE_IF_SPARE = "REPLACE_IF_SPARE"  # the hosts work, but not soundly
    NOTE = "NOTE"  # nothing: the run goes on
    ROLL_BACK = "ROLL_BACK"  # before the suspect states, without the batches that led to them
    HOLD = "HOLD"  # pause: a person has to look
    DRAIN = "DRAIN"  # move off the hosts once spares are there, losing no step


class ExitClass(StrEnum):
    """How a rank's process ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    KILLED = "killed"
    USER_ERROR = "user_error"
    COLLECTIVE = "collective"
    BAD_ENTRY_POINT = "bad_entry_point"
    RESTORE_FAILED = "restore_failed"
    HOST_TOO_SMALL = "host_too_small"


class Mark(StrEnum):
    """A point in a job's course, as the controller told it."""

    SUBMITTED = "submitted"
    BEGUN = "begun"
    SHORT = "short"
    PLACED = "placed"
    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


class Finding(StrEnum):
    """What an audit has come to, with those of the same step and replica before it."""

    ALIKE = "alike"
    DIFFERS = "differs"  # from what the job's ranks had, and nobody knows yet who was wrong
    NAMED = "named"  # a host of the job was wrong
    SPARE_NAMED = "spare_named"  # a host that did the step again was wrong
    OPEN = "open"  # nobody can be named, and no further audit would tell


class WatchedHost(Record, frozen=True, kw_only=True):
    """A host of the job and the ranks on it."""

    host_id: str
    ranks: tuple[int, ...]


HOST_LOST: Final = "host_lost"  # kind of an incident
SILENT_CORRUPTION: Final = "silent_corruption"  # kind of an incident, in the registry's words too
NEVER_EQUAL: Final = "never_equal"  # kind of a note: ranks held other bits from the beginning


class NumericsRules(Record, frozen=True, kw_only=True):
    """When the loss or gradient counts as wrong, and what is done; as in the job spec."""

    on_spike: str = "off"
    window_steps: int = 256
    window_steps_min: int = 64
    loss_z: float = 6.0
    norm_z: float = 6.0
    loss_z_with_norm: float = 3.0
    spike_steps: int = 3
    non_finite_steps: int = 3
    skip_before: int = 1
    repeat_steps: int = 500


class CorruptionRules(Record, frozen=True, kw_only=True):
    """What is done about copies that are not equal, and how suspicion ages; of the job spec."""

    on_corruption: str = "off"
    suspicion_half_life_ms: int = 604_800_000
    bits_vary: bool = False  # the job does not ask for kernels that repeat their bits
    audit_every_checkpoints: int = 0


NO_RULES: Final = NumericsRules()
NO_CORRUPTION_RULES: Final = CorruptionRules()
NO_LAYOUT: Final = Layout()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOf:
    """What makes a job an audit: it does a step of another job's again, one replica's share of it.

    ``step`` is that of the checkpoint that it begins from, ``layout`` the other job's, and
    ``works`` are what the replica's ranks came to, in the order of the audit's ranks: outputs and
    gradient in hexadecimal digits. ``generation`` is the other job's when it was asked for.
    """

    job_id: str
    step: int
    replica: int
    number: int
    works: tuple[str, ...]
    layout: Layout
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMarked:
    """The job passed ``mark``; hosts come with PLACED, a step with PLANNED and RUNNING.

    What follows ``at_ms`` is of the job's spec and comes with SUBMITTED; a job from before there
    was any of it has none.
    """

    job_id: str
    generation: int
    mark: Mark
    cause: str = ""
    hosts: tuple[WatchedHost, ...] = ()
    step: int = 0
    at_ms: int = 0
    numerics: NumericsRules = NO_RULES
    layout: Layout = NO_LAYOUT
    collective_timeout_ms: int = 0
    slow_hosts: str = "off"
    steps: int = 0
    corruption: CorruptionRules = NO_CORRUPTION_RULES
    audit: AuditOf | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnded:
    """A rank's process has ended."""

    job_id: str
    generation: int
    rank: int
    host_id: str
    exit_class: ExitClass
    signal: int = 0
    error: str = ""
    detail: str = ""
    step: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentOpened:
    """Something went wrong, with one root cause; ``job_id`` is "" for a host that serves none.

    ``own_step``: its generation was heard to make ``step`` (None: not said by older monitors), else
    that is how far the one before had come. ``suspect_from_step`` is the first step whose state may
    be bad (0: no state is doubted), and ``skipped`` are the batches that may have led to it.
    """

    incident_id: str
    job_id: str
    generation: int
    kind: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    step: int = 0
    own_step: bool | None = None
    action: Action = Action.RESTART
    reason: str = ""
    detail: str = ""
    failed_at_ms: int = 0
    detected_at_ms: int = 0
    suspect_from_step: int = 0
    skipped: tuple[PositionRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TieFound:
    """Ranks did not come to the same, and nothing tells who was wrong before it is made again."""

    job_id: str
    generation: int
    tie: Tie
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAudited:
    """Other hosts did a replica's share of the step after a checkpoint again: what came of it.

    ``ranks`` are the job's where the difference from it begins; none: all bits are alike. Of one
    that is alike or differs, ``owners`` are the hosts on which the job's ranks had made the step
    ("": not known); of one that differs, ``works`` are what the audit's ranks came to, and
    ``seats`` the hosts on which they did. All are in the order of the audit's ranks.
    """

    job_id: str
    step: int
    replica: int
    number: int
    audit_job_id: str
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    finding: Finding
    why: str
    at_ms: int
    works: tuple[str, ...] = ()
    seats: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRecovered:
    """The job makes new steps again (or the host is back in service)."""

    incident_id: str
    job_id: str
    recovered_at_ms: int
    lost_ms: int
    lost_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentClosed:
    """The job ended before it had recovered, or the lost host has left: nothing is waited for."""

    incident_id: str
    job_id: str
    why: str
    closed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayFound:
    """A host still runs ranks of a generation, or of a job, that is over."""

    job_id: str
    generation: int
    host_id: str
    stray_generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationProgressed:
    """Every host has reported the first step of the generation."""

    job_id: str
    generation: int
    step: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """Every rank has finished; ``detail`` tells of ranks that returned at different steps."""

    job_id: str
    generation: int
    step: int
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRefused:
    """A copy of a rank's state could not be used (``kind`` says which tier); the next one was."""

    job_id: str
    generation: int
    rank: int
    step: int
    kind: str
    host_id: str = ""
    uri: str = ""
    detail: str = ""
    at_ms: int = 0


Event = (
    JobMarked
    | SourceRefused
    | RankEnded
    | IncidentOpened
    | TieFound
    | StepAudited
    | IncidentRecovered
    | IncidentClosed
    | StrayFound
    | GenerationProgressed
    | RunFinished
)
