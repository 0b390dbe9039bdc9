"""What may be asked of a job, by people (Launch, Restart, ...) and by its own recovery (Record...).

The Record commands carry answers from other services back to the decider; each names the generation
it belongs to, and an answer of an older generation changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from everstep.core.corrections import PositionRange
from everstep.core.placement import Placement


class Verdict(StrEnum):
    """What the monitor advises about an incident."""

    RESTART = "restart"
    REPLACE = "replace"
    REPLACE_IF_SPARE = "replace_if_spare"
    FAIL = "fail"
    NOTE = "note"
    ROLL_BACK = "roll_back"
    HOLD = "hold"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """Start a run; sending it again with the same spec changes nothing.

    ``audits``: it is an audit, by ``auditing.launch_of``; the wire and HTTP do not say it.
    """

    job_id: str
    spec_json: str
    at_ms: int
    audits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartJob:
    """Go back to ``from_step`` (-1: the newest restorable one)."""

    job_id: str
    from_step: int = -1
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """End the run at the next step that all ranks agree on."""

    job_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseJob:
    """Stop the ranks, keep hosts and state."""

    job_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeJob:
    """Go on after a pause; with ``skip_batches`` without those that the job is held for."""

    job_id: str
    at_ms: int
    skip_batches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    """Write a durable checkpoint at the next step."""

    job_id: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainHosts:
    """Move off ``hosts`` as soon as spares can take their seats."""

    job_id: str
    hosts: tuple[str, ...]
    why: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAudit:
    """Give the hosts of an audit back."""

    job_id: str
    why: str
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginDrain:
    """Spares can take the seats of ``hosts`` now."""

    job_id: str
    generation: int
    hosts: tuple[str, ...]
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginGrow:
    """There is room for more of the job's ranks now."""

    job_id: str
    generation: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverJob:
    """The monitor opened an incident in ``generation``.

    ``hosts`` are lost if it says replace, and unsound if it says replace if there are spares.
    ``reason`` is one sentence, ``detail`` e.g. the traceback. States from ``before_step`` on are
    suspect (0: none is), and the batches in ``skipped`` may have made them so.
    """

    job_id: str
    generation: int
    incident_id: str
    verdict: Verdict
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    kind: str = ""
    reason: str = ""
    detail: str = ""
    at_ms: int = 0
    before_step: int = 0
    skipped: tuple[PositionRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFenced:
    """Answers to the fence are in."""

    job_id: str
    generation: int
    hosts: tuple[str, ...]
    unreachable: tuple[str, ...] = ()
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlacement:
    """The inventory placed the job; ``remark`` names a wish that it could not fulfil."""

    job_id: str
    generation: int
    placement: Placement
    replacements: tuple[str, ...] = ()
    remark: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShort:
    """The inventory has too few hosts for now."""

    job_id: str
    generation: int
    missing: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """The registry chose where to go on from."""

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
class RecordStarted:
    """Every host has taken its start command."""

    job_id: str
    generation: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLost:
    """Hosts of the new placement did not answer while the generation came up."""

    job_id: str
    generation: int
    hosts: tuple[str, ...]
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRefused:
    """Another service refused what the job needs, for good."""

    job_id: str
    generation: int
    why: str
    detail: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordProgress:
    """The monitor saw the first committed step of ``generation``."""

    job_id: str
    generation: int
    step: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFinished:
    """The monitor saw every rank finish; ``detail`` tells if not all did at the same step."""

    job_id: str
    generation: int
    step: int
    at_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetInterval:
    """A person says how often to snapshot, or with ``auto`` that measurements should; -1: as is."""

    job_id: str
    auto: bool = False
    memory_every_steps: int = -1
    object_every_steps: int = -1
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the job's own steps have shown of late; ``IntervalGrounds`` says what each field is."""

    step: int = 0
    step_us: int = 0
    steps_count: int = 0
    memory_stall_us: int = 0
    memory_count: int = 0
    object_stall_us: int = 0
    object_count: int = 0
    upload_ms: int = 0
    upload_ms_max: int = 0
    upload_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighInterval:
    """Is there a better schedule, by what was measured?"""

    job_id: str
    generation: int
    measured: Measured
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordInForce:
    """Ranks tell that they made ``step`` under a schedule."""

    job_id: str
    generation: int
    version: int
    step: int
    at_ms: int = 0


Command = (
    LaunchJob
    | RestartJob
    | StopJob
    | PauseJob
    | ResumeJob
    | SaveCheckpoint
    | DrainHosts
    | EndAudit
    | BeginDrain
    | BeginGrow
    | RecoverJob
    | RecordFenced
    | RecordPlacement
    | RecordShort
    | RecordPlan
    | RecordStarted
    | RecordLost
    | RecordRefused
    | RecordProgress
    | RecordFinished
    | SetInterval
    | WeighInterval
    | RecordInForce
)
