"""What the monitor is told, by the controller's events, by hosts, and by its own detectors."""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.corrections import PositionRange
from everstep.core.placement import Layout
from everstep.monitor.doubts import Doubt
from everstep.monitor.events import (
    NO_CORRUPTION_RULES,
    NO_LAYOUT,
    NO_RULES,
    Action,
    AuditOf,
    CorruptionRules,
    ExitClass,
    Mark,
    NumericsRules,
    StepAudited,
    WatchedHost,
)
from everstep.monitor.ties import Tie


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkJob:
    """The controller's job passed ``mark``."""

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
class ObserveExit:
    """An agent reported that a rank's process ended."""

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
class ObserveRefusal:
    """An agent reported a source of the restore plan that it could not use."""

    job_id: str
    generation: int
    rank: int
    step: int
    kind: str
    host_id: str = ""
    uri: str = ""
    detail: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveProgress:
    """Every host of the generation has reported a step; ``step`` is the first one."""

    job_id: str
    generation: int
    step: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveStray:
    """A host's heartbeat names ranks of ``generation``, which may be over."""

    job_id: str
    generation: int
    host_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """A detector's verdict. ``job_id`` is "" when the one host in ``hosts`` serves no job.

    ``own_step``: the generation was heard to make ``step`` (None: not known). ``elsewhere`` are the
    doubts that other jobs have left.
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
    ties: tuple[Tie, ...] = ()
    elsewhere: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleNote:
    """What was noted of a kind is over; it has cost ``lost_ms``."""

    job_id: str
    kind: str
    lost_ms: int
    lost_steps: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteAudit:
    """An audit of the job has come to ``found``, and ``incident`` follows from it.

    Both are stored or none: a generation that another incident has ended already is waited out.
    ``asked_in`` is the generation in which the audit was asked for: what the job has undone since
    says nothing.
    """

    found: StepAudited
    incident: OpenIncident | None = None
    asked_in: int | None = None

    @property
    def job_id(self) -> str:
        """The job that was looked at."""
        return self.found.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseHostIncident:
    """A host outside any job is back in service, or has ``left`` the fleet on purpose."""

    host_id: str
    at_ms: int
    left: bool = False


Command = (
    MarkJob
    | ObserveExit
    | ObserveRefusal
    | ObserveProgress
    | ObserveStray
    | OpenIncident
    | SettleNote
    | NoteAudit
    | CloseHostIncident
)
