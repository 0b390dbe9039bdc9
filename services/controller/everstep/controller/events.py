"""What has happened to a job. Field names are those of ``proto/everstep/v1/jobs.proto``.

Measurements are not here, and neither is anything that can be asked for again (who holds which
snapshot, the restore plan's sources): an event records a decision and what it was decided on.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.placement import Placement


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

    ``cause`` is launch, recovery, restart, resume, pause or stop; ``from_step`` -1 means newest.
    ``lost_hosts`` must not serve on; ``unsound_hosts`` had better not, if spares allow. ``remark``
    says which wish the generation does not fulfil, e.g. a step that is not there.
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
    """A person wants the ranks stopped and their state kept."""

    job_id: str
    at_ms: int


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
    """Going on would not help; ``why`` is a stable code, ``detail`` is for a person."""

    job_id: str
    generation: int
    why: str
    detail: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStopped:
    """Ended on request."""

    job_id: str
    generation: int
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
    | JobPaused
    | StopRequested
    | CheckpointRequested
    | JobSucceeded
    | JobFailed
    | JobStopped
)
