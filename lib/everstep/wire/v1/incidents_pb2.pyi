from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    RESTART: _ClassVar[Action]
    REPLACE: _ClassVar[Action]
    FAIL: _ClassVar[Action]
    REPLACE_IF_SPARE: _ClassVar[Action]
    NOTE: _ClassVar[Action]
    ROLL_BACK: _ClassVar[Action]
    HOLD: _ClassVar[Action]
    DRAIN: _ClassVar[Action]
ACTION_UNSPECIFIED: Action
RESTART: Action
REPLACE: Action
FAIL: Action
REPLACE_IF_SPARE: Action
NOTE: Action
ROLL_BACK: Action
HOLD: Action
DRAIN: Action

class IncidentOpened(_message.Message):
    __slots__ = ("incident_id", "job_id", "generation", "kind", "ranks", "hosts", "step", "own_step", "action", "reason", "detail", "failed_at_ms", "detected_at_ms", "suspect_from_step", "skipped")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OWN_STEP_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DETECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    job_id: str
    generation: int
    kind: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    step: int
    own_step: bool
    action: Action
    reason: str
    detail: str
    failed_at_ms: int
    detected_at_ms: int
    suspect_from_step: int
    skipped: _containers.RepeatedCompositeFieldContainer[_common_pb2.PositionRange]
    def __init__(self, incident_id: _Optional[str] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., hosts: _Optional[_Iterable[str]] = ..., step: _Optional[int] = ..., own_step: _Optional[bool] = ..., action: _Optional[_Union[Action, str]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., failed_at_ms: _Optional[int] = ..., detected_at_ms: _Optional[int] = ..., suspect_from_step: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[_common_pb2.PositionRange, _Mapping]]] = ...) -> None: ...

class TieFound(_message.Message):
    __slots__ = ("job_id", "generation", "tie", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TIE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    tie: Tie
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., tie: _Optional[_Union[Tie, _Mapping]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class Tie(_message.Message):
    __slots__ = ("step", "layout", "suspects", "claims", "work")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    step: int
    layout: _common_pb2.Layout
    suspects: _containers.RepeatedScalarFieldContainer[int]
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    work: bool
    def __init__(self, step: _Optional[int] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., suspects: _Optional[_Iterable[int]] = ..., claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ..., work: _Optional[bool] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("what", "whose", "rank", "host_id", "value")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WHOSE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    what: str
    whose: int
    rank: int
    host_id: str
    value: int
    def __init__(self, what: _Optional[str] = ..., whose: _Optional[int] = ..., rank: _Optional[int] = ..., host_id: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class StepAudited(_message.Message):
    __slots__ = ("job_id", "step", "replica", "number", "audit_job_id", "hosts", "ranks", "finding", "why", "at_ms", "works", "seats", "owners")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AUDIT_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    FINDING_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKS_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    replica: int
    number: int
    audit_job_id: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    finding: str
    why: str
    at_ms: int
    works: _containers.RepeatedScalarFieldContainer[str]
    seats: _containers.RepeatedScalarFieldContainer[str]
    owners: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., replica: _Optional[int] = ..., number: _Optional[int] = ..., audit_job_id: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., ranks: _Optional[_Iterable[int]] = ..., finding: _Optional[str] = ..., why: _Optional[str] = ..., at_ms: _Optional[int] = ..., works: _Optional[_Iterable[str]] = ..., seats: _Optional[_Iterable[str]] = ..., owners: _Optional[_Iterable[str]] = ...) -> None: ...

class IncidentRecovered(_message.Message):
    __slots__ = ("incident_id", "job_id", "recovered_at_ms", "lost_ms", "lost_steps")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_STEPS_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    job_id: str
    recovered_at_ms: int
    lost_ms: int
    lost_steps: int
    def __init__(self, incident_id: _Optional[str] = ..., job_id: _Optional[str] = ..., recovered_at_ms: _Optional[int] = ..., lost_ms: _Optional[int] = ..., lost_steps: _Optional[int] = ...) -> None: ...

class IncidentClosed(_message.Message):
    __slots__ = ("incident_id", "job_id", "why", "closed_at_ms")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    job_id: str
    why: str
    closed_at_ms: int
    def __init__(self, incident_id: _Optional[str] = ..., job_id: _Optional[str] = ..., why: _Optional[str] = ..., closed_at_ms: _Optional[int] = ...) -> None: ...

class StrayFound(_message.Message):
    __slots__ = ("job_id", "generation", "host_id", "stray_generation", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    STRAY_GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    host_id: str
    stray_generation: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., host_id: _Optional[str] = ..., stray_generation: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RankEnded(_message.Message):
    __slots__ = ("job_id", "generation", "rank", "host_id", "exit_class", "signal", "error", "detail", "step", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    EXIT_CLASS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    rank: int
    host_id: str
    exit_class: str
    signal: int
    error: str
    detail: str
    step: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., host_id: _Optional[str] = ..., exit_class: _Optional[str] = ..., signal: _Optional[int] = ..., error: _Optional[str] = ..., detail: _Optional[str] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SourceRefused(_message.Message):
    __slots__ = ("job_id", "generation", "rank", "step", "kind", "host_id", "uri", "detail", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    rank: int
    step: int
    kind: str
    host_id: str
    uri: str
    detail: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., kind: _Optional[str] = ..., host_id: _Optional[str] = ..., uri: _Optional[str] = ..., detail: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobMarked(_message.Message):
    __slots__ = ("job_id", "generation", "mark", "cause", "hosts", "step", "at_ms", "numerics", "layout", "collective_timeout_ms", "slow_hosts", "steps", "corruption", "audit")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SLOW_HOSTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CORRUPTION_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    mark: str
    cause: str
    hosts: _containers.RepeatedCompositeFieldContainer[WatchedHost]
    step: int
    at_ms: int
    numerics: NumericsRules
    layout: _common_pb2.Layout
    collective_timeout_ms: int
    slow_hosts: str
    steps: int
    corruption: CorruptionRules
    audit: AuditOf
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., mark: _Optional[str] = ..., cause: _Optional[str] = ..., hosts: _Optional[_Iterable[_Union[WatchedHost, _Mapping]]] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ..., numerics: _Optional[_Union[NumericsRules, _Mapping]] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., collective_timeout_ms: _Optional[int] = ..., slow_hosts: _Optional[str] = ..., steps: _Optional[int] = ..., corruption: _Optional[_Union[CorruptionRules, _Mapping]] = ..., audit: _Optional[_Union[AuditOf, _Mapping]] = ...) -> None: ...

class NumericsRules(_message.Message):
    __slots__ = ("on_spike", "window_steps", "window_steps_min", "loss_z", "norm_z", "loss_z_with_norm", "spike_steps", "non_finite_steps", "skip_before", "repeat_steps")
    ON_SPIKE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_STEPS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_STEPS_MIN_FIELD_NUMBER: _ClassVar[int]
    LOSS_Z_FIELD_NUMBER: _ClassVar[int]
    NORM_Z_FIELD_NUMBER: _ClassVar[int]
    LOSS_Z_WITH_NORM_FIELD_NUMBER: _ClassVar[int]
    SPIKE_STEPS_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_STEPS_FIELD_NUMBER: _ClassVar[int]
    SKIP_BEFORE_FIELD_NUMBER: _ClassVar[int]
    REPEAT_STEPS_FIELD_NUMBER: _ClassVar[int]
    on_spike: str
    window_steps: int
    window_steps_min: int
    loss_z: float
    norm_z: float
    loss_z_with_norm: float
    spike_steps: int
    non_finite_steps: int
    skip_before: int
    repeat_steps: int
    def __init__(self, on_spike: _Optional[str] = ..., window_steps: _Optional[int] = ..., window_steps_min: _Optional[int] = ..., loss_z: _Optional[float] = ..., norm_z: _Optional[float] = ..., loss_z_with_norm: _Optional[float] = ..., spike_steps: _Optional[int] = ..., non_finite_steps: _Optional[int] = ..., skip_before: _Optional[int] = ..., repeat_steps: _Optional[int] = ...) -> None: ...

class CorruptionRules(_message.Message):
    __slots__ = ("on_corruption", "suspicion_half_life_ms", "bits_vary", "audit_every_checkpoints")
    ON_CORRUPTION_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_HALF_LIFE_MS_FIELD_NUMBER: _ClassVar[int]
    BITS_VARY_FIELD_NUMBER: _ClassVar[int]
    AUDIT_EVERY_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    on_corruption: str
    suspicion_half_life_ms: int
    bits_vary: bool
    audit_every_checkpoints: int
    def __init__(self, on_corruption: _Optional[str] = ..., suspicion_half_life_ms: _Optional[int] = ..., bits_vary: _Optional[bool] = ..., audit_every_checkpoints: _Optional[int] = ...) -> None: ...

class AuditOf(_message.Message):
    __slots__ = ("job_id", "step", "replica", "number", "works", "layout", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORKS_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    replica: int
    number: int
    works: _containers.RepeatedScalarFieldContainer[str]
    layout: _common_pb2.Layout
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., replica: _Optional[int] = ..., number: _Optional[int] = ..., works: _Optional[_Iterable[str]] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class WatchedHost(_message.Message):
    __slots__ = ("host_id", "ranks")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, host_id: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerationProgressed(_message.Message):
    __slots__ = ("job_id", "generation", "step", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    step: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RunFinished(_message.Message):
    __slots__ = ("job_id", "generation", "step", "at_ms", "detail")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    step: int
    at_ms: int
    detail: str
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...
