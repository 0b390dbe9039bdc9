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
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SaveCheckpoint(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("job_id", "generation", "cause", "incident_id", "lost_hosts", "from_step", "at_ms", "unsound_hosts", "remark")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_HOSTS_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNSOUND_HOSTS_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    cause: str
    incident_id: str
    lost_hosts: _containers.RepeatedScalarFieldContainer[str]
    from_step: int
    at_ms: int
    unsound_hosts: _containers.RepeatedScalarFieldContainer[str]
    remark: str
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., cause: _Optional[str] = ..., incident_id: _Optional[str] = ..., lost_hosts: _Optional[_Iterable[str]] = ..., from_step: _Optional[int] = ..., at_ms: _Optional[int] = ..., unsound_hosts: _Optional[_Iterable[str]] = ..., remark: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("job_id", "generation", "why", "detail", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    why: str
    detail: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., why: _Optional[str] = ..., detail: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobStopped(_message.Message):
    __slots__ = ("job_id", "generation", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...
