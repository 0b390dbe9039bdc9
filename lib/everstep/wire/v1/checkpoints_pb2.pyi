from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Shard(_message.Message):
    __slots__ = ("rank", "uri", "bytes", "checksum")
    RANK_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    rank: int
    uri: str
    bytes: int
    checksum: str
    def __init__(self, rank: _Optional[int] = ..., uri: _Optional[str] = ..., bytes: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("host_id", "address", "peer_port", "generation", "own", "replicas")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    peer_port: int
    generation: int
    own: _containers.RepeatedScalarFieldContainer[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., generation: _Optional[int] = ..., own: _Optional[_Iterable[int]] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class RestoreSources(_message.Message):
    __slots__ = ("holders", "shards", "shards_generation", "old_layout", "lost", "of_job_id")
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_GENERATION_FIELD_NUMBER: _ClassVar[int]
    OLD_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    OF_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    holders: _containers.RepeatedCompositeFieldContainer[Holder]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    shards_generation: int
    old_layout: _common_pb2.Layout
    lost: _containers.RepeatedScalarFieldContainer[int]
    of_job_id: str
    def __init__(self, holders: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., shards_generation: _Optional[int] = ..., old_layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., lost: _Optional[_Iterable[int]] = ..., of_job_id: _Optional[str] = ...) -> None: ...

class ReportShards(_message.Message):
    __slots__ = ("job_id", "step", "generation", "host_id", "world_size", "shards", "data_state", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    host_id: str
    world_size: int
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    data_state: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., host_id: _Optional[str] = ..., world_size: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., data_state: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class PlanRestore(_message.Message):
    __slots__ = ("job_id", "generation", "world_size", "holdings", "from_step", "at_ms", "before_step", "layout")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_STEP_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    world_size: int
    holdings: _containers.RepeatedCompositeFieldContainer[HostHoldings]
    from_step: int
    at_ms: int
    before_step: int
    layout: _common_pb2.Layout
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., world_size: _Optional[int] = ..., holdings: _Optional[_Iterable[_Union[HostHoldings, _Mapping]]] = ..., from_step: _Optional[int] = ..., at_ms: _Optional[int] = ..., before_step: _Optional[int] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ...) -> None: ...

class HostHoldings(_message.Message):
    __slots__ = ("host_id", "address", "peer_port", "held")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    peer_port: int
    held: _containers.RepeatedCompositeFieldContainer[_common_pb2.HeldSnapshots]
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., held: _Optional[_Iterable[_Union[_common_pb2.HeldSnapshots, _Mapping]]] = ...) -> None: ...

class PlanRestoreReply(_message.Message):
    __slots__ = ("outcome", "step", "passed_over", "sources")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    step: int
    passed_over: _containers.RepeatedScalarFieldContainer[str]
    sources: RestoreSources
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., step: _Optional[int] = ..., passed_over: _Optional[_Iterable[str]] = ..., sources: _Optional[_Union[RestoreSources, _Mapping]] = ...) -> None: ...

class PlanAudit(_message.Message):
    __slots__ = ("job_id", "step", "replica", "layout")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    replica: int
    layout: _common_pb2.Layout
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., replica: _Optional[int] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ...) -> None: ...

class ListSteps(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class ListStepsReply(_message.Message):
    __slots__ = ("outcome", "steps")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    steps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., steps: _Optional[_Iterable[int]] = ...) -> None: ...

class CheckStep(_message.Message):
    __slots__ = ("job_id", "step")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class CheckStepReply(_message.Message):
    __slots__ = ("outcome", "checked")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    checked: str
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., checked: _Optional[str] = ...) -> None: ...

class DropJobCheckpoints(_message.Message):
    __slots__ = ("job_id", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SuspectSteps(_message.Message):
    __slots__ = ("job_id", "suspicion_id", "generation", "from_step", "to_step", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    suspicion_id: str
    generation: int
    from_step: int
    to_step: int
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., suspicion_id: _Optional[str] = ..., generation: _Optional[int] = ..., from_step: _Optional[int] = ..., to_step: _Optional[int] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class EndSuspicion(_message.Message):
    __slots__ = ("job_id", "suspicion_id", "false_alarm", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_ID_FIELD_NUMBER: _ClassVar[int]
    FALSE_ALARM_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    suspicion_id: str
    false_alarm: bool
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., suspicion_id: _Optional[str] = ..., false_alarm: _Optional[bool] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class DecideTrust(_message.Message):
    __slots__ = ("job_id", "step", "generation", "trust", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    trust: str
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., trust: _Optional[str] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class PinCheckpoint(_message.Message):
    __slots__ = ("job_id", "step", "generation", "note", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    note: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., note: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class UnpinCheckpoint(_message.Message):
    __slots__ = ("job_id", "step", "generation", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ShardsStored(_message.Message):
    __slots__ = ("job_id", "step", "generation", "world_size", "shards", "data_state", "at_ms", "hosts")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DATA_STATE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    world_size: int
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    data_state: str
    at_ms: int
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., world_size: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., data_state: _Optional[str] = ..., at_ms: _Optional[int] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class ShardsRefused(_message.Message):
    __slots__ = ("job_id", "step", "generation", "uri", "why", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    uri: str
    why: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., uri: _Optional[str] = ..., why: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointCompleted(_message.Message):
    __slots__ = ("job_id", "step", "generation", "manifest_uri", "bytes", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_URI_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    manifest_uri: str
    bytes: int
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., manifest_uri: _Optional[str] = ..., bytes: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointDeleted(_message.Message):
    __slots__ = ("job_id", "step", "generation", "why", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    why: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., why: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class RestorePlanned(_message.Message):
    __slots__ = ("job_id", "generation", "step", "own_memory", "peer_memory", "object_store", "passed_over", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OWN_MEMORY_FIELD_NUMBER: _ClassVar[int]
    PEER_MEMORY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_STORE_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    step: int
    own_memory: int
    peer_memory: int
    object_store: int
    passed_over: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., own_memory: _Optional[int] = ..., peer_memory: _Optional[int] = ..., object_store: _Optional[int] = ..., passed_over: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointsSuspected(_message.Message):
    __slots__ = ("job_id", "suspicion_id", "kind", "generation", "from_step", "to_step", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    suspicion_id: str
    kind: str
    generation: int
    from_step: int
    to_step: int
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., suspicion_id: _Optional[str] = ..., kind: _Optional[str] = ..., generation: _Optional[int] = ..., from_step: _Optional[int] = ..., to_step: _Optional[int] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class SuspicionEnded(_message.Message):
    __slots__ = ("job_id", "suspicion_id", "outcome", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPICION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    suspicion_id: str
    outcome: str
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., suspicion_id: _Optional[str] = ..., outcome: _Optional[str] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class TrustDecided(_message.Message):
    __slots__ = ("job_id", "step", "generation", "trust", "why", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    trust: str
    why: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., trust: _Optional[str] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointPinned(_message.Message):
    __slots__ = ("job_id", "step", "generation", "note", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    note: str
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., note: _Optional[str] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CheckpointUnpinned(_message.Message):
    __slots__ = ("job_id", "step", "generation", "by", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: int
    generation: int
    by: str
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., by: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...
