"""What has happened to a job. Field names are those of ``proto/everstep/v1/jobs.proto``.

Measurements are not here, and neither is anything that can be asked for again (who holds which
snapshot, the restore plan's sources): an event records a decision and what it was decided on.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.corrections import PositionRange
from everstep.core.placement import Placement
from everstep.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A person asked for a run; ``spec_json`` is the checked job spec."""

    job_id: str
    name: str
    spec_json: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBegun:
    """From here on everything of an older generation is fenced off.

    ``cause`` is launch, recovery, restart, resume, drain, grow, pause or stop; ``from_step`` -1
    means the newest. ``lost_hosts`` must not serve on; ``unsound_hosts`` had better not, if spares
    allow. ``remark`` says which wish the generation does not fulfil, e.g. a step that is not there.
    Only states from before ``before_step`` will do (0: any); the batches in ``skipped`` are left
    out from now on. ``lost_why`` says what the lost hosts have done, where they are not just gone.
    With fewer data-parallel groups than ``dp_min`` the job did not fit its hosts (0: not tried).
    """

    job_id: str
    generation: int
    cause: str
    incident_id: str = ""
    lost_hosts: tuple[str, ...] = ()
    from_step: int = -1
    at_ms: int = 0
    unsound_hosts: tuple[str, ...] = ()
    remark: str = ""
    before_step: int = 0
    skipped: tuple[PositionRange, ...] = ()
    lost_why: str = ""
    dp_min: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsFenced:
    """``hosts`` have ended older ranks and told what they hold; ``unreachable`` never answered."""

    job_id: str
    generation: int
    hosts: tuple[str, ...]
    unreachable: tuple[str, ...] = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecided:
    """The inventory gave every rank a host; ``replacements`` are new in this generation.

    ``remark`` says which wish the placement does not fulfil, e.g. that an unsound host stays.
    """

    job_id: str
    generation: int
    placement: Placement
    replacements: tuple[str, ...] = ()
    at_ms: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsShort:
    """``missing`` more hosts are needed; the job waits for them."""

    job_id: str
    generation: int
    missing: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreDecided:
    """The registry chose the step to go on from (-1: fresh); counts are ranks by source.

    The rendezvous is decided here too, so that a controller that dies between two start commands
    sends the rest of the hosts to the same place.
    """

    job_id: str
    generation: int
    step: int
    own_memory: int = 0
    peer_memory: int = 0
    object_store: int = 0
    rendezvous_address: str = ""
    rendezvous_port: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStarted:
    """Every host has taken its start command."""

    job_id: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunning:
    """The first step of the generation was committed."""

    job_id: str
    generation: int
    step: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """The ranks are to be stopped and their state kept: a person wants it, or an incident.

    Whether the batches in ``questioned`` are to be left out, which an incident suspects, is what a
    person is to decide.
    """

    job_id: str
    at_ms: int
    incident_id: str = ""
    why: str = ""
    questioned: tuple[PositionRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """The job is to move off ``hosts``; it runs on until spares can take their seats.

    ``kind`` is the incident's, "" for a person's wish; ``why`` is one sentence.
    """

    job_id: str
    hosts: tuple[str, ...]
    why: str = ""
    incident_id: str = ""
    at_ms: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    """No rank runs; the hosts stay reserved and hold the snapshots."""

    job_id: str
    generation: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """A person wants the run ended."""

    job_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequested:
    """A person wants a durable checkpoint now."""

    job_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded:
    """Every rank finished; ``step`` is the last one, ``detail`` what is odd about the end."""

    job_id: str
    generation: int
    step: int
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    """Going on would not help; ``why`` is a stable code, ``detail`` is for a person.

    If a person begins it again all the same, states from ``before_step`` on will not do (0: any),
    and the batches in ``skipped`` are left out.
    """

    job_id: str
    generation: int
    why: str
    detail: str = ""
    at_ms: int = 0
    before_step: int = 0
    skipped: tuple[PositionRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStopped:
    """Ended on request; ``detail`` says why an audit was not made."""

    job_id: str
    generation: int
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentNoted:
    """An incident is kept that the job, paused, ending or over, does nothing about now.

    Nothing is to be placed on ``hosts``, which are at fault as ``kind`` says. Should the job go on
    one day, states from ``before_step`` on will not do (0: any), and the batches in ``skipped`` are
    left out.
    """

    job_id: str
    generation: int
    incident_id: str = ""
    kind: str = ""
    hosts: tuple[str, ...] = ()
    before_step: int = 0
    skipped: tuple[PositionRange, ...] = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalGrounds:
    """What a schedule was decided on. A count of 0 means that the value is believed or guessed.

    Stalls are of one snapshot, ``upload_ms`` is the usual time from a step to its complete
    checkpoint and ``upload_ms_max`` the longest of late, ``mtbf_ms`` the mean time between failures
    of the whole job.
    """

    step_us: int = 0
    steps_count: int = 0
    memory_stall_us: int = 0
    memory_count: int = 0
    object_stall_us: int = 0
    object_count: int = 0
    upload_ms: int = 0
    upload_ms_max: int = 0
    upload_count: int = 0
    mtbf_ms: int = 0
    failures_count: int = 0
    running_ms: int = 0
    memory_lost_share: float = 0.0
    memory_restores_count: int = 0
    object_restores_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChanged:
    """Another schedule holds; the ranks change to it together at one of their next steps.

    ``auto`` says whether measurements may change it again. The wastes are shares of time: what
    snapshots and the work that failures undo cost before and after, as expected.
    """

    job_id: str
    generation: int
    schedule: Schedule
    auto: bool
    reason: str
    grounds: IntervalGrounds = IntervalGrounds()
    waste_before: float = 0.0
    waste_after: float = 0.0
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalInForce:
    """Ranks of ``generation`` were seen to make ``step`` under this version of the schedule."""

    job_id: str
    generation: int
    version: int
    step: int
    at_ms: int


Event = (
    JobSubmitted
    | GenerationBegun
    | HostsFenced
    | PlacementDecided
    | HostsShort
    | RestoreDecided
    | RanksStarted
    | JobRunning
    | PauseRequested
    | DrainRequested
    | JobPaused
    | StopRequested
    | CheckpointRequested
    | JobSucceeded
    | JobFailed
    | JobStopped
    | IncidentNoted
    | IntervalChanged
    | IntervalInForce
)
