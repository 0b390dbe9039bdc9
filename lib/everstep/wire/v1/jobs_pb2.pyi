from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaunchJob(_message.Message):
    __slots__ = ("job_id", "spec_json", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    spec_json: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., spec_json: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RestartJob(_message.Message):
    __slots__ = ("job_id", "from_step", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    from_step: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., from_step: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class StopJob(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class PauseJob(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ResumeJob(_message.Message):
    __slots__ = ("job_id", "at_ms", "skip_batches")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SKIP_BATCHES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    skip_batches: bool
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., skip_batches: _Optional[bool] = ...) -> None: ...

class SaveCheckpoint(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class DrainHosts(_message.Message):
    __slots__ = ("job_id", "hosts", "why", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    why: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SetInterval(_message.Message):
    __slots__ = ("job_id", "auto", "memory_every_steps", "object_every_steps", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    auto: bool
    memory_every_steps: int
    object_every_steps: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., auto: _Optional[bool] = ..., memory_every_steps: _Optional[int] = ..., object_every_steps: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class AuditStep(_message.Message):
    __slots__ = ("job_id", "step", "replica", "number", "works", "at_ms", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WORKS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    replica: int
    number: int
    works: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., replica: _Optional[int] = ..., number: _Optional[int] = ..., works: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class JobSubmitted(_message.Message):
    __slots__ = ("job_id", "name", "spec_json", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    spec_json: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., spec_json: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class GenerationBegun(_message.Message):
    __slots__ = ("job_id", "generation", "cause", "incident_id", "lost_hosts", "from_step", "at_ms", "unsound_hosts", "remark", "before_step", "skipped", "lost_why", "dp_min")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_HOSTS_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNSOUND_HOSTS_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    BEFORE_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    LOST_WHY_FIELD_NUMBER: _ClassVar[int]
    DP_MIN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    cause: str
    incident_id: str
    lost_hosts: _containers.RepeatedScalarFieldContainer[str]
    from_step: int
    at_ms: int
    unsound_hosts: _containers.RepeatedScalarFieldContainer[str]
    remark: str
    before_step: int
    skipped: _containers.RepeatedCompositeFieldContainer[_common_pb2.PositionRange]
    lost_why: str
    dp_min: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., cause: _Optional[str] = ..., incident_id: _Optional[str] = ..., lost_hosts: _Optional[_Iterable[str]] = ..., from_step: _Optional[int] = ..., at_ms: _Optional[int] = ..., unsound_hosts: _Optional[_Iterable[str]] = ..., remark: _Optional[str] = ..., before_step: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[_common_pb2.PositionRange, _Mapping]]] = ..., lost_why: _Optional[str] = ..., dp_min: _Optional[int] = ...) -> None: ...

class HostsFenced(_message.Message):
    __slots__ = ("job_id", "generation", "hosts", "unreachable", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    hosts: _containers.RepeatedScalarFieldContainer[str]
    unreachable: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., hosts: _Optional[_Iterable[str]] = ..., unreachable: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class PlacementDecided(_message.Message):
    __slots__ = ("job_id", "generation", "placement", "replacements", "at_ms", "remark")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    placement: _common_pb2.Placement
    replacements: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    remark: str
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., placement: _Optional[_Union[_common_pb2.Placement, _Mapping]] = ..., replacements: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ..., remark: _Optional[str] = ...) -> None: ...

class HostsShort(_message.Message):
    __slots__ = ("job_id", "generation", "missing", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    missing: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., missing: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RestoreDecided(_message.Message):
    __slots__ = ("job_id", "generation", "step", "own_memory", "peer_memory", "object_store", "at_ms", "rendezvous_address", "rendezvous_port")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OWN_MEMORY_FIELD_NUMBER: _ClassVar[int]
    PEER_MEMORY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_STORE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_PORT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    step: int
    own_memory: int
    peer_memory: int
    object_store: int
    at_ms: int
    rendezvous_address: str
    rendezvous_port: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., own_memory: _Optional[int] = ..., peer_memory: _Optional[int] = ..., object_store: _Optional[int] = ..., at_ms: _Optional[int] = ..., rendezvous_address: _Optional[str] = ..., rendezvous_port: _Optional[int] = ...) -> None: ...

class RanksStarted(_message.Message):
    __slots__ = ("job_id", "generation", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobRunning(_message.Message):
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

class PauseRequested(_message.Message):
    __slots__ = ("job_id", "at_ms", "incident_id", "why", "questioned")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    QUESTIONED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    incident_id: str
    why: str
    questioned: _containers.RepeatedCompositeFieldContainer[_common_pb2.PositionRange]
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., incident_id: _Optional[str] = ..., why: _Optional[str] = ..., questioned: _Optional[_Iterable[_Union[_common_pb2.PositionRange, _Mapping]]] = ...) -> None: ...

class DrainRequested(_message.Message):
    __slots__ = ("job_id", "hosts", "why", "incident_id", "at_ms", "kind")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    why: str
    incident_id: str
    at_ms: int
    kind: str
    def __init__(self, job_id: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class JobPaused(_message.Message):
    __slots__ = ("job_id", "generation", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class StopRequested(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointRequested(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobSucceeded(_message.Message):
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

class JobFailed(_message.Message):
    __slots__ = ("job_id", "generation", "why", "detail", "at_ms", "before_step", "skipped")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    why: str
    detail: str
    at_ms: int
    before_step: int
    skipped: _containers.RepeatedCompositeFieldContainer[_common_pb2.PositionRange]
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., why: _Optional[str] = ..., detail: _Optional[str] = ..., at_ms: _Optional[int] = ..., before_step: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[_common_pb2.PositionRange, _Mapping]]] = ...) -> None: ...

class JobStopped(_message.Message):
    __slots__ = ("job_id", "generation", "at_ms", "detail")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    at_ms: int
    detail: str
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., at_ms: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class IncidentNoted(_message.Message):
    __slots__ = ("job_id", "generation", "incident_id", "kind", "hosts", "before_step", "skipped", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    incident_id: str
    kind: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    before_step: int
    skipped: _containers.RepeatedCompositeFieldContainer[_common_pb2.PositionRange]
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., incident_id: _Optional[str] = ..., kind: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., before_step: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[_common_pb2.PositionRange, _Mapping]]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class IntervalChanged(_message.Message):
    __slots__ = ("job_id", "generation", "schedule", "auto", "reason", "grounds", "waste_before", "waste_after", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUNDS_FIELD_NUMBER: _ClassVar[int]
    WASTE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WASTE_AFTER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    schedule: _common_pb2.Schedule
    auto: bool
    reason: str
    grounds: IntervalGrounds
    waste_before: float
    waste_after: float
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., schedule: _Optional[_Union[_common_pb2.Schedule, _Mapping]] = ..., auto: _Optional[bool] = ..., reason: _Optional[str] = ..., grounds: _Optional[_Union[IntervalGrounds, _Mapping]] = ..., waste_before: _Optional[float] = ..., waste_after: _Optional[float] = ..., at_ms: _Optional[int] = ...) -> None: ...

class IntervalGrounds(_message.Message):
    __slots__ = ("step_us", "steps_count", "memory_stall_us", "memory_count", "object_stall_us", "object_count", "upload_ms", "upload_ms_max", "upload_count", "mtbf_ms", "failures_count", "running_ms", "memory_lost_share", "memory_restores_count", "object_restores_count")
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    STEPS_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_STALL_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_STALL_US_FIELD_NUMBER: _ClassVar[int]
    OBJECT_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_MS_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    MTBF_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LOST_SHARE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RESTORES_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_RESTORES_COUNT_FIELD_NUMBER: _ClassVar[int]
    step_us: int
    steps_count: int
    memory_stall_us: int
    memory_count: int
    object_stall_us: int
    object_count: int
    upload_ms: int
    upload_ms_max: int
    upload_count: int
    mtbf_ms: int
    failures_count: int
    running_ms: int
    memory_lost_share: float
    memory_restores_count: int
    object_restores_count: int
    def __init__(self, step_us: _Optional[int] = ..., steps_count: _Optional[int] = ..., memory_stall_us: _Optional[int] = ..., memory_count: _Optional[int] = ..., object_stall_us: _Optional[int] = ..., object_count: _Optional[int] = ..., upload_ms: _Optional[int] = ..., upload_ms_max: _Optional[int] = ..., upload_count: _Optional[int] = ..., mtbf_ms: _Optional[int] = ..., failures_count: _Optional[int] = ..., running_ms: _Optional[int] = ..., memory_lost_share: _Optional[float] = ..., memory_restores_count: _Optional[int] = ..., object_restores_count: _Optional[int] = ...) -> None: ...

class IntervalInForce(_message.Message):
    __slots__ = ("job_id", "generation", "version", "step", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    version: int
    step: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., version: _Optional[int] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...
