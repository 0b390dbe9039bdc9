from everstep.wire.v1 import checkpoints_pb2 as _checkpoints_pb2
from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReportKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPORT_KIND_UNSPECIFIED: _ClassVar[ReportKind]
    RANK_READY: _ClassVar[ReportKind]
    RANK_EXITED: _ClassVar[ReportKind]
    COLLECTIVE_ERROR: _ClassVar[ReportKind]
    START_FAILED: _ClassVar[ReportKind]

class ExitClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXIT_CLASS_UNSPECIFIED: _ClassVar[ExitClass]
    FINISHED: _ClassVar[ExitClass]
    STOPPED: _ClassVar[ExitClass]
    KILLED: _ClassVar[ExitClass]
    USER_ERROR: _ClassVar[ExitClass]
    COLLECTIVE: _ClassVar[ExitClass]
    BAD_ENTRY_POINT: _ClassVar[ExitClass]
    RESTORE_FAILED: _ClassVar[ExitClass]
REPORT_KIND_UNSPECIFIED: ReportKind
RANK_READY: ReportKind
RANK_EXITED: ReportKind
COLLECTIVE_ERROR: ReportKind
START_FAILED: ReportKind
EXIT_CLASS_UNSPECIFIED: ExitClass
FINISHED: ExitClass
STOPPED: ExitClass
KILLED: ExitClass
USER_ERROR: ExitClass
COLLECTIVE: ExitClass
BAD_ENTRY_POINT: ExitClass
RESTORE_FAILED: ExitClass

class Heartbeat(_message.Message):
    __slots__ = ("host_id", "agent_epoch", "sequence", "at_ms", "jobs")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    agent_epoch: str
    sequence: int
    at_ms: int
    jobs: _containers.RepeatedCompositeFieldContainer[RunningJob]
    def __init__(self, host_id: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., sequence: _Optional[int] = ..., at_ms: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ...) -> None: ...

class RunningJob(_message.Message):
    __slots__ = ("job_id", "generation", "ranks", "last_step")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    last_step: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., last_step: _Optional[int] = ...) -> None: ...

class StepMetrics(_message.Message):
    __slots__ = ("host_id", "job_id", "generation", "at_ms", "ranks", "held")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    job_id: str
    generation: int
    at_ms: int
    ranks: _containers.RepeatedCompositeFieldContainer[RankStep]
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    def __init__(self, host_id: _Optional[str] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ..., at_ms: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[RankStep, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ...) -> None: ...

class RankStep(_message.Message):
    __slots__ = ("rank", "step", "step_time_ms", "blocked_ms", "data_wait_ms", "stall_ms", "loss", "grad_norm", "tokens", "health", "completed_at_ms", "first")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_MS_FIELD_NUMBER: _ClassVar[int]
    DATA_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    STALL_MS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    rank: int
    step: int
    step_time_ms: float
    blocked_ms: float
    data_wait_ms: float
    stall_ms: float
    loss: float
    grad_norm: float
    tokens: int
    health: str
    completed_at_ms: int
    first: bool
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[int] = ..., step_time_ms: _Optional[float] = ..., blocked_ms: _Optional[float] = ..., data_wait_ms: _Optional[float] = ..., stall_ms: _Optional[float] = ..., loss: _Optional[float] = ..., grad_norm: _Optional[float] = ..., tokens: _Optional[int] = ..., health: _Optional[str] = ..., completed_at_ms: _Optional[int] = ..., first: _Optional[bool] = ...) -> None: ...

class RankReport(_message.Message):
    __slots__ = ("report_id", "host_id", "agent_epoch", "job_id", "generation", "rank", "kind", "exit_class", "exit_code", "signal", "error", "traceback", "step", "at_ms", "source_kind", "restored_step", "restore_problems", "refused_sources")
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXIT_CLASS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_KIND_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    RESTORE_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_SOURCES_FIELD_NUMBER: _ClassVar[int]
    report_id: str
    host_id: str
    agent_epoch: str
    job_id: str
    generation: int
    rank: int
    kind: ReportKind
    exit_class: ExitClass
    exit_code: int
    signal: int
    error: str
    traceback: str
    step: int
    at_ms: int
    source_kind: str
    restored_step: int
    restore_problems: _containers.RepeatedScalarFieldContainer[str]
    refused_sources: _containers.RepeatedCompositeFieldContainer[RefusedSource]
    def __init__(self, report_id: _Optional[str] = ..., host_id: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., kind: _Optional[_Union[ReportKind, str]] = ..., exit_class: _Optional[_Union[ExitClass, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., error: _Optional[str] = ..., traceback: _Optional[str] = ..., step: _Optional[int] = ..., at_ms: _Optional[int] = ..., source_kind: _Optional[str] = ..., restored_step: _Optional[int] = ..., restore_problems: _Optional[_Iterable[str]] = ..., refused_sources: _Optional[_Iterable[_Union[RefusedSource, _Mapping]]] = ...) -> None: ...

class RefusedSource(_message.Message):
    __slots__ = ("step", "kind", "host_id", "uri", "detail")
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    step: int
    kind: _common_pb2.SourceKind
    host_id: str
    uri: str
    detail: str
    def __init__(self, step: _Optional[int] = ..., kind: _Optional[_Union[_common_pb2.SourceKind, str]] = ..., host_id: _Optional[str] = ..., uri: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class StartRanks(_message.Message):
    __slots__ = ("job_id", "generation", "spec_json", "rendezvous_address", "rendezvous_port", "restore_step", "sources", "layout", "host_index", "host_count", "host", "peer", "replicas")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_PORT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_STEP_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    HOST_INDEX_FIELD_NUMBER: _ClassVar[int]
    HOST_COUNT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    spec_json: str
    rendezvous_address: str
    rendezvous_port: int
    restore_step: int
    sources: _checkpoints_pb2.RestoreSources
    layout: _common_pb2.Layout
    host_index: int
    host_count: int
    host: _common_pb2.HostPlacement
    peer: _common_pb2.HostPlacement
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., spec_json: _Optional[str] = ..., rendezvous_address: _Optional[str] = ..., rendezvous_port: _Optional[int] = ..., restore_step: _Optional[int] = ..., sources: _Optional[_Union[_checkpoints_pb2.RestoreSources, _Mapping]] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., host_index: _Optional[int] = ..., host_count: _Optional[int] = ..., host: _Optional[_Union[_common_pb2.HostPlacement, _Mapping]] = ..., peer: _Optional[_Union[_common_pb2.HostPlacement, _Mapping]] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class StopRanks(_message.Message):
    __slots__ = ("job_id", "generation", "graceful", "forget")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    graceful: bool
    forget: bool
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., graceful: _Optional[bool] = ..., forget: _Optional[bool] = ...) -> None: ...

class StopRanksReply(_message.Message):
    __slots__ = ("outcome", "host_id", "rendezvous_port", "address", "held")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_PORT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    rendezvous_port: int
    address: str
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., rendezvous_port: _Optional[int] = ..., address: _Optional[str] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ...) -> None: ...

class SaveRanks(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class RestoreRanks(_message.Message):
    __slots__ = ("job_id", "generation", "step", "sources")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    step: int
    sources: _checkpoints_pb2.RestoreSources
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., sources: _Optional[_Union[_checkpoints_pb2.RestoreSources, _Mapping]] = ...) -> None: ...

class SeekRanks(_message.Message):
    __slots__ = ("job_id", "generation", "position")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    position: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class TellSteps(_message.Message):
    __slots__ = ("job_id", "after_step")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    after_step: int
    def __init__(self, job_id: _Optional[str] = ..., after_step: _Optional[int] = ...) -> None: ...

class TellStepsReply(_message.Message):
    __slots__ = ("outcome", "metrics")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    metrics: _containers.RepeatedCompositeFieldContainer[StepMetrics]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[StepMetrics, _Mapping]]] = ...) -> None: ...

class ProbeHost(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    def __init__(self, nonce: _Optional[str] = ...) -> None: ...

class ProbeHostReply(_message.Message):
    __slots__ = ("outcome", "host_id", "nonce", "agent_epoch", "jobs", "fork_server_warm", "held")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FORK_SERVER_WARM_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    nonce: str
    agent_epoch: str
    jobs: _containers.RepeatedCompositeFieldContainer[RunningJob]
    fork_server_warm: bool
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., nonce: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ..., fork_server_warm: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ...) -> None: ...
