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
