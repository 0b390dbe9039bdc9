from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinHost(_message.Message):
    __slots__ = ("host_id", "pod", "power", "chips", "address", "peer_port", "agent_epoch", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    CHIPS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., pod: _Optional[str] = ..., power: _Optional[str] = ..., chips: _Optional[int] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., agent_epoch: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class LeaveHost(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CordonHost(_message.Message):
    __slots__ = ("host_id", "reason", "incident_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class UncordonHost(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CountErrors(_message.Message):
    __slots__ = ("host_id", "kind", "count", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    kind: str
    count: int
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., kind: _Optional[str] = ..., count: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class PlaceJob(_message.Message):
    __slots__ = ("job_id", "generation", "layout", "lost_hosts", "reason", "incident_id", "at_ms", "unsound_hosts")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LOST_HOSTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNSOUND_HOSTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    layout: _common_pb2.Layout
    lost_hosts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    incident_id: str
    at_ms: int
    unsound_hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., lost_hosts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., unsound_hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class PlaceJobReply(_message.Message):
    __slots__ = ("outcome", "placement", "hosts_short", "replacements")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_SHORT_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    placement: _common_pb2.Placement
    hosts_short: int
    replacements: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., placement: _Optional[_Union[_common_pb2.Placement, _Mapping]] = ..., hosts_short: _Optional[int] = ..., replacements: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseJob(_message.Message):
    __slots__ = ("job_id", "at_ms", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class ListHosts(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHostsReply(_message.Message):
    __slots__ = ("outcome", "hosts")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class HostJoined(_message.Message):
    __slots__ = ("host_id", "pod", "power", "chips", "address", "peer_port", "agent_epoch", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    CHIPS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., pod: _Optional[str] = ..., power: _Optional[str] = ..., chips: _Optional[int] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., agent_epoch: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostLeft(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostCordoned(_message.Message):
    __slots__ = ("host_id", "reason", "incident_id", "at_ms", "job_id", "generation")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str
    generation: int
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class HostUncordoned(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostErrorsCounted(_message.Message):
    __slots__ = ("host_id", "kind", "count", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    kind: str
    count: int
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., kind: _Optional[str] = ..., count: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobPlaced(_message.Message):
    __slots__ = ("job_id", "generation", "placement", "replacements", "at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    placement: _common_pb2.Placement
    replacements: _containers.RepeatedScalarFieldContainer[str]
    at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., placement: _Optional[_Union[_common_pb2.Placement, _Mapping]] = ..., replacements: _Optional[_Iterable[str]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class JobReleased(_message.Message):
    __slots__ = ("job_id", "at_ms", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    at_ms: int
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
