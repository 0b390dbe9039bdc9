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
    HOST_TOO_SMALL: _ClassVar[ExitClass]

class ProcessState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROCESS_STATE_UNSPECIFIED: _ClassVar[ProcessState]
    PROCESS_RUNNING: _ClassVar[ProcessState]
    PROCESS_SLEEPING: _ClassVar[ProcessState]
    PROCESS_DISK_WAIT: _ClassVar[ProcessState]
    PROCESS_STOPPED: _ClassVar[ProcessState]
    PROCESS_TRACED: _ClassVar[ProcessState]
    PROCESS_GONE: _ClassVar[ProcessState]

class RankPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_STARTING: _ClassVar[RankPhase]
    PHASE_LOADING: _ClassVar[RankPhase]
    PHASE_COMPUTING: _ClassVar[RankPhase]
    PHASE_AGREEING: _ClassVar[RankPhase]
    PHASE_SNAPSHOTTING: _ClassVar[RankPhase]
    PHASE_BETWEEN: _ClassVar[RankPhase]
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
HOST_TOO_SMALL: ExitClass
PROCESS_STATE_UNSPECIFIED: ProcessState
PROCESS_RUNNING: ProcessState
PROCESS_SLEEPING: ProcessState
PROCESS_DISK_WAIT: ProcessState
PROCESS_STOPPED: ProcessState
PROCESS_TRACED: ProcessState
PROCESS_GONE: ProcessState
PHASE_STARTING: RankPhase
PHASE_LOADING: RankPhase
PHASE_COMPUTING: RankPhase
PHASE_AGREEING: RankPhase
PHASE_SNAPSHOTTING: RankPhase
PHASE_BETWEEN: RankPhase

class Heartbeat(_message.Message):
    __slots__ = ("host_id", "agent_epoch", "sequence", "at_ms", "jobs", "errors", "clock_unsynchronised", "kept")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_UNSYNCHRONISED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    agent_epoch: str
    sequence: int
    at_ms: int
    jobs: _containers.RepeatedCompositeFieldContainer[RunningJob]
    errors: _containers.RepeatedCompositeFieldContainer[ErrorCount]
    clock_unsynchronised: bool
    kept: _containers.RepeatedCompositeFieldContainer[KeptJob]
    def __init__(self, host_id: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., sequence: _Optional[int] = ..., at_ms: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ErrorCount, _Mapping]]] = ..., clock_unsynchronised: _Optional[bool] = ..., kept: _Optional[_Iterable[_Union[KeptJob, _Mapping]]] = ...) -> None: ...

class KeptJob(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ErrorCount(_message.Message):
    __slots__ = ("kind", "part", "count", "age_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    part: str
    count: int
    age_ms: int
    def __init__(self, kind: _Optional[str] = ..., part: _Optional[str] = ..., count: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class RunningJob(_message.Message):
    __slots__ = ("job_id", "generation", "ranks", "last_step", "untold", "uncopied")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    UNTOLD_FIELD_NUMBER: _ClassVar[int]
    UNCOPIED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    last_step: int
    untold: _containers.RepeatedScalarFieldContainer[int]
    uncopied: Uncopied
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., last_step: _Optional[int] = ..., untold: _Optional[_Iterable[int]] = ..., uncopied: _Optional[_Union[Uncopied, _Mapping]] = ...) -> None: ...

class Uncopied(_message.Message):
    __slots__ = ("ranks", "peer_host_id", "why", "age_ms")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    PEER_HOST_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    peer_host_id: str
    why: str
    age_ms: int
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., peer_host_id: _Optional[str] = ..., why: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("rank", "step", "step_time_ms", "blocked_ms", "data_wait_ms", "stall_ms", "loss", "grad_norm", "tokens", "health", "completed_at_ms", "first", "kept", "durable", "schedule_version", "own_ms", "position", "poisoned", "fingerprints", "compared_step", "verified_step", "shadow_ms", "checked")
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
    KEPT_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_VERSION_FIELD_NUMBER: _ClassVar[int]
    OWN_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    POISONED_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_STEP_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_STEP_FIELD_NUMBER: _ClassVar[int]
    SHADOW_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
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
    kept: bool
    durable: bool
    schedule_version: int
    own_ms: float
    position: int
    poisoned: bool
    fingerprints: _containers.RepeatedCompositeFieldContainer[Fingerprint]
    compared_step: int
    verified_step: int
    shadow_ms: float
    checked: Checked
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[int] = ..., step_time_ms: _Optional[float] = ..., blocked_ms: _Optional[float] = ..., data_wait_ms: _Optional[float] = ..., stall_ms: _Optional[float] = ..., loss: _Optional[float] = ..., grad_norm: _Optional[float] = ..., tokens: _Optional[int] = ..., health: _Optional[str] = ..., completed_at_ms: _Optional[int] = ..., first: _Optional[bool] = ..., kept: _Optional[bool] = ..., durable: _Optional[bool] = ..., schedule_version: _Optional[int] = ..., own_ms: _Optional[float] = ..., position: _Optional[int] = ..., poisoned: _Optional[bool] = ..., fingerprints: _Optional[_Iterable[_Union[Fingerprint, _Mapping]]] = ..., compared_step: _Optional[int] = ..., verified_step: _Optional[int] = ..., shadow_ms: _Optional[float] = ..., checked: _Optional[_Union[Checked, _Mapping]] = ...) -> None: ...

class Checked(_message.Message):
    __slots__ = ("rerun", "local_norm", "recomputed_wrong", "own")
    RERUN_FIELD_NUMBER: _ClassVar[int]
    LOCAL_NORM_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_WRONG_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    rerun: Rerun
    local_norm: float
    recomputed_wrong: _containers.RepeatedScalarFieldContainer[str]
    own: Work
    def __init__(self, rerun: _Optional[_Union[Rerun, _Mapping]] = ..., local_norm: _Optional[float] = ..., recomputed_wrong: _Optional[_Iterable[str]] = ..., own: _Optional[_Union[Work, _Mapping]] = ...) -> None: ...

class Rerun(_message.Message):
    __slots__ = ("of", "own", "other")
    OF_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    of: int
    own: Work
    other: Work
    def __init__(self, of: _Optional[int] = ..., own: _Optional[_Union[Work, _Mapping]] = ..., other: _Optional[_Union[Work, _Mapping]] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("forward", "gradient")
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    forward: int
    gradient: int
    def __init__(self, forward: _Optional[int] = ..., gradient: _Optional[int] = ...) -> None: ...

class Fingerprint(_message.Message):
    __slots__ = ("over", "value")
    OVER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    over: int
    value: int
    def __init__(self, over: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("step", "kind", "host_id", "uri", "detail", "rank")
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    step: int
    kind: _common_pb2.SourceKind
    host_id: str
    uri: str
    detail: str
    rank: int
    def __init__(self, step: _Optional[int] = ..., kind: _Optional[_Union[_common_pb2.SourceKind, str]] = ..., host_id: _Optional[str] = ..., uri: _Optional[str] = ..., detail: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class StartRanks(_message.Message):
    __slots__ = ("job_id", "generation", "spec_json", "rendezvous_address", "rendezvous_port", "restore_step", "sources", "layout", "host_index", "host_count", "host", "peer", "replicas", "schedule", "corrections")
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
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
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
    schedule: _common_pb2.Schedule
    corrections: _common_pb2.Corrections
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., spec_json: _Optional[str] = ..., rendezvous_address: _Optional[str] = ..., rendezvous_port: _Optional[int] = ..., restore_step: _Optional[int] = ..., sources: _Optional[_Union[_checkpoints_pb2.RestoreSources, _Mapping]] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., host_index: _Optional[int] = ..., host_count: _Optional[int] = ..., host: _Optional[_Union[_common_pb2.HostPlacement, _Mapping]] = ..., peer: _Optional[_Union[_common_pb2.HostPlacement, _Mapping]] = ..., replicas: _Optional[_Iterable[int]] = ..., schedule: _Optional[_Union[_common_pb2.Schedule, _Mapping]] = ..., corrections: _Optional[_Union[_common_pb2.Corrections, _Mapping]] = ...) -> None: ...

class StopRanks(_message.Message):
    __slots__ = ("job_id", "generation", "graceful", "forget", "store", "uploads_go_on")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_GO_ON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    graceful: bool
    forget: bool
    store: bool
    uploads_go_on: bool
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., graceful: _Optional[bool] = ..., forget: _Optional[bool] = ..., store: _Optional[bool] = ..., uploads_go_on: _Optional[bool] = ...) -> None: ...

class StopRanksReply(_message.Message):
    __slots__ = ("outcome", "host_id", "rendezvous_port", "address", "held", "peer_port", "pod", "power", "broken")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_PORT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    rendezvous_port: int
    address: str
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    peer_port: int
    pod: str
    power: str
    broken: bool
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., rendezvous_port: _Optional[int] = ..., address: _Optional[str] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ..., peer_port: _Optional[int] = ..., pod: _Optional[str] = ..., power: _Optional[str] = ..., broken: _Optional[bool] = ...) -> None: ...

class RecomputeRanks(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class SaveRanks(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class SetSchedule(_message.Message):
    __slots__ = ("job_id", "generation", "schedule")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    schedule: _common_pb2.Schedule
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., schedule: _Optional[_Union[_common_pb2.Schedule, _Mapping]] = ...) -> None: ...

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

class TellStacks(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class TellStacksReply(_message.Message):
    __slots__ = ("outcome", "host_id", "ranks")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankStack]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankStack, _Mapping]]] = ...) -> None: ...

class RankStack(_message.Message):
    __slots__ = ("rank", "step", "state", "phase", "answered", "silence", "look_ms", "cpu_ms", "process_cpu_ms", "io_bytes", "wchan", "frames", "threads")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    LOOK_MS_FIELD_NUMBER: _ClassVar[int]
    CPU_MS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_CPU_MS_FIELD_NUMBER: _ClassVar[int]
    IO_BYTES_FIELD_NUMBER: _ClassVar[int]
    WCHAN_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    step: int
    state: ProcessState
    phase: RankPhase
    answered: bool
    silence: str
    look_ms: int
    cpu_ms: int
    process_cpu_ms: int
    io_bytes: int
    wchan: str
    frames: _containers.RepeatedScalarFieldContainer[str]
    threads: _containers.RepeatedCompositeFieldContainer[ThreadStack]
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[int] = ..., state: _Optional[_Union[ProcessState, str]] = ..., phase: _Optional[_Union[RankPhase, str]] = ..., answered: _Optional[bool] = ..., silence: _Optional[str] = ..., look_ms: _Optional[int] = ..., cpu_ms: _Optional[int] = ..., process_cpu_ms: _Optional[int] = ..., io_bytes: _Optional[int] = ..., wchan: _Optional[str] = ..., frames: _Optional[_Iterable[str]] = ..., threads: _Optional[_Iterable[_Union[ThreadStack, _Mapping]]] = ...) -> None: ...

class ThreadStack(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, frames: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckLinks(_message.Message):
    __slots__ = ("peers",)
    PEERS_FIELD_NUMBER: _ClassVar[int]
    peers: _containers.RepeatedCompositeFieldContainer[LinkPeer]
    def __init__(self, peers: _Optional[_Iterable[_Union[LinkPeer, _Mapping]]] = ...) -> None: ...

class LinkPeer(_message.Message):
    __slots__ = ("host_id", "address", "port")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    port: int
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class CheckLinksReply(_message.Message):
    __slots__ = ("outcome", "host_id", "links")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    links: _containers.RepeatedCompositeFieldContainer[LinkCheck]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., links: _Optional[_Iterable[_Union[LinkCheck, _Mapping]]] = ...) -> None: ...

class LinkCheck(_message.Message):
    __slots__ = ("host_id", "reached", "took_ms", "why")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REACHED_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reached: bool
    took_ms: int
    why: str
    def __init__(self, host_id: _Optional[str] = ..., reached: _Optional[bool] = ..., took_ms: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class TellChecksums(_message.Message):
    __slots__ = ("job_id", "step", "ranks")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class TellChecksumsReply(_message.Message):
    __slots__ = ("outcome", "host_id", "ranks")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    ranks: _containers.RepeatedCompositeFieldContainer[RankChecksums]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., ranks: _Optional[_Iterable[_Union[RankChecksums, _Mapping]]] = ...) -> None: ...

class RankChecksums(_message.Message):
    __slots__ = ("rank", "tensors")
    RANK_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorChecksum]
    def __init__(self, rank: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorChecksum, _Mapping]]] = ...) -> None: ...

class TensorChecksum(_message.Message):
    __slots__ = ("name", "checksum", "over")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    name: str
    checksum: str
    over: int
    def __init__(self, name: _Optional[str] = ..., checksum: _Optional[str] = ..., over: _Optional[int] = ...) -> None: ...

class ProbeHost(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    def __init__(self, nonce: _Optional[str] = ...) -> None: ...

class ProbeHostReply(_message.Message):
    __slots__ = ("outcome", "host_id", "nonce", "agent_epoch", "jobs", "fork_server_warm", "held", "errors")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FORK_SERVER_WARM_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    nonce: str
    agent_epoch: str
    jobs: _containers.RepeatedCompositeFieldContainer[RunningJob]
    fork_server_warm: bool
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    errors: _containers.RepeatedCompositeFieldContainer[ErrorCount]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., nonce: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[RunningJob, _Mapping]]] = ..., fork_server_warm: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ErrorCount, _Mapping]]] = ...) -> None: ...
