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
ACTION_UNSPECIFIED: Action
RESTART: Action
REPLACE: Action
FAIL: Action
REPLACE_IF_SPARE: Action

class IncidentOpened(_message.Message):
    __slots__ = ("incident_id", "job_id", "generation", "kind", "ranks", "hosts", "step", "action", "reason", "detail", "failed_at_ms", "detected_at_ms")
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DETECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    incident_id: str
    job_id: str
    generation: int
    kind: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    step: int
    action: Action
    reason: str
    detail: str
    failed_at_ms: int
    detected_at_ms: int
    def __init__(self, incident_id: _Optional[str] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., hosts: _Optional[_Iterable[str]] = ..., step: _Optional[int] = ..., action: _Optional[_Union[Action, str]] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., failed_at_ms: _Optional[int] = ..., detected_at_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("job_id", "generation", "mark", "cause", "hosts", "step", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    mark: str
    cause: str
    hosts: _containers.RepeatedCompositeFieldContainer[WatchedHost]
    step: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., mark: _Optional[str] = ..., cause: _Optional[str] = ..., hosts: _Optional[_Iterable[_Union[WatchedHost, _Mapping]]] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

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
