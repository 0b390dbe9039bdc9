from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SourceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_KIND_UNSPECIFIED: _ClassVar[SourceKind]
    OWN_MEMORY: _ClassVar[SourceKind]
    PEER_MEMORY: _ClassVar[SourceKind]
    OBJECT_STORE: _ClassVar[SourceKind]
SOURCE_KIND_UNSPECIFIED: SourceKind
OWN_MEMORY: SourceKind
PEER_MEMORY: SourceKind
OBJECT_STORE: SourceKind

class Layout(_message.Message):
    __slots__ = ("pp", "dp_replicate", "dp_shard", "tp")
    PP_FIELD_NUMBER: _ClassVar[int]
    DP_REPLICATE_FIELD_NUMBER: _ClassVar[int]
    DP_SHARD_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    pp: int
    dp_replicate: int
    dp_shard: int
    tp: int
    def __init__(self, pp: _Optional[int] = ..., dp_replicate: _Optional[int] = ..., dp_shard: _Optional[int] = ..., tp: _Optional[int] = ...) -> None: ...

class HostPlacement(_message.Message):
    __slots__ = ("host_id", "address", "peer_port", "ranks", "replica_host_id")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_HOST_ID_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    peer_port: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    replica_host_id: str
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., replica_host_id: _Optional[str] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("layout", "hosts")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    layout: Layout
    hosts: _containers.RepeatedCompositeFieldContainer[HostPlacement]
    def __init__(self, layout: _Optional[_Union[Layout, _Mapping]] = ..., hosts: _Optional[_Iterable[_Union[HostPlacement, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("accepted", "why", "detail")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    why: str
    detail: str
    def __init__(self, accepted: _Optional[bool] = ..., why: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class CommandReply(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class HeldSnapshots(_message.Message):
    __slots__ = ("step", "generation", "own", "ranks")
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    step: int
    generation: int
    own: bool
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., generation: _Optional[int] = ..., own: _Optional[bool] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("version", "memory_every_steps", "object_every_steps")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_EVERY_STEPS_FIELD_NUMBER: _ClassVar[int]
    version: int
    memory_every_steps: int
    object_every_steps: int
    def __init__(self, version: _Optional[int] = ..., memory_every_steps: _Optional[int] = ..., object_every_steps: _Optional[int] = ...) -> None: ...

class PositionRange(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class RateSpan(_message.Message):
    __slots__ = ("after_step", "until_step", "factor")
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    after_step: int
    until_step: int
    factor: float
    def __init__(self, after_step: _Optional[int] = ..., until_step: _Optional[int] = ..., factor: _Optional[float] = ...) -> None: ...

class BatchSpan(_message.Message):
    __slots__ = ("after_step", "samples")
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    after_step: int
    samples: int
    def __init__(self, after_step: _Optional[int] = ..., samples: _Optional[int] = ...) -> None: ...

class Corrections(_message.Message):
    __slots__ = ("skipped", "rates", "batches")
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    skipped: _containers.RepeatedCompositeFieldContainer[PositionRange]
    rates: _containers.RepeatedCompositeFieldContainer[RateSpan]
    batches: _containers.RepeatedCompositeFieldContainer[BatchSpan]
    def __init__(self, skipped: _Optional[_Iterable[_Union[PositionRange, _Mapping]]] = ..., rates: _Optional[_Iterable[_Union[RateSpan, _Mapping]]] = ..., batches: _Optional[_Iterable[_Union[BatchSpan, _Mapping]]] = ...) -> None: ...
