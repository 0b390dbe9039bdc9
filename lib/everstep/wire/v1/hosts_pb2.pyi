from everstep.wire.v1 import common_pb2 as _common_pb2
from everstep.wire.v1 import probes_pb2 as _probes_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinHost(_message.Message):
    __slots__ = ("host_id", "pod", "power", "chips", "address", "peer_port", "agent_epoch", "at_ms", "probes")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    CHIPS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int
    probes: bool
    def __init__(self, host_id: _Optional[str] = ..., pod: _Optional[str] = ..., power: _Optional[str] = ..., chips: _Optional[int] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., agent_epoch: _Optional[str] = ..., at_ms: _Optional[int] = ..., probes: _Optional[bool] = ...) -> None: ...

class LeaveHost(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class CordonHost(_message.Message):
    __slots__ = ("host_id", "reason", "incident_id", "at_ms", "job_id")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., job_id: _Optional[str] = ...) -> None: ...

class UncordonHost(_message.Message):
    __slots__ = ("host_id", "at_ms", "now")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    now: bool
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., now: _Optional[bool] = ...) -> None: ...

class MaintainHost(_message.Message):
    __slots__ = ("host_id", "reason", "until_ms", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    until_ms: int
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., until_ms: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("job_id", "generation", "layout", "lost_hosts", "reason", "incident_id", "at_ms", "unsound_hosts", "unsound_reason", "smaller", "turn")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LOST_HOSTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNSOUND_HOSTS_FIELD_NUMBER: _ClassVar[int]
    UNSOUND_REASON_FIELD_NUMBER: _ClassVar[int]
    SMALLER_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    layout: _common_pb2.Layout
    lost_hosts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    incident_id: str
    at_ms: int
    unsound_hosts: _containers.RepeatedScalarFieldContainer[str]
    unsound_reason: str
    smaller: _containers.RepeatedCompositeFieldContainer[_common_pb2.Layout]
    turn: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ..., lost_hosts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., unsound_hosts: _Optional[_Iterable[str]] = ..., unsound_reason: _Optional[str] = ..., smaller: _Optional[_Iterable[_Union[_common_pb2.Layout, _Mapping]]] = ..., turn: _Optional[int] = ...) -> None: ...

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

class CanReplace(_message.Message):
    __slots__ = ("job_id", "hosts")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class CanReplaceReply(_message.Message):
    __slots__ = ("outcome", "hosts")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class CanPlace(_message.Message):
    __slots__ = ("job_id", "layouts")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    layouts: _containers.RepeatedCompositeFieldContainer[_common_pb2.Layout]
    def __init__(self, job_id: _Optional[str] = ..., layouts: _Optional[_Iterable[_Union[_common_pb2.Layout, _Mapping]]] = ...) -> None: ...

class CanPlaceReply(_message.Message):
    __slots__ = ("outcome", "layout")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    layout: _common_pb2.Layout
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., layout: _Optional[_Union[_common_pb2.Layout, _Mapping]] = ...) -> None: ...

class ListHosts(_message.Message):
    __slots__ = ("hosts",)
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class ListHostsReply(_message.Message):
    __slots__ = ("outcome", "hosts", "addresses")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    hosts: _containers.RepeatedScalarFieldContainer[str]
    addresses: _containers.RepeatedCompositeFieldContainer[HostAddress]
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., hosts: _Optional[_Iterable[str]] = ..., addresses: _Optional[_Iterable[_Union[HostAddress, _Mapping]]] = ...) -> None: ...

class HostAddress(_message.Message):
    __slots__ = ("host_id", "address", "peer_port")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    peer_port: int
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ...) -> None: ...

class HostJoined(_message.Message):
    __slots__ = ("host_id", "pod", "power", "chips", "address", "peer_port", "agent_epoch", "at_ms", "probes")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    CHIPS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    agent_epoch: str
    at_ms: int
    probes: bool
    def __init__(self, host_id: _Optional[str] = ..., pod: _Optional[str] = ..., power: _Optional[str] = ..., chips: _Optional[int] = ..., address: _Optional[str] = ..., peer_port: _Optional[int] = ..., agent_epoch: _Optional[str] = ..., at_ms: _Optional[int] = ..., probes: _Optional[bool] = ...) -> None: ...

class HostLeft(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostCordoned(_message.Message):
    __slots__ = ("host_id", "reason", "incident_id", "at_ms", "job_id", "generation", "fault", "relapses", "held_ms", "returns", "maintenance")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    RELAPSES_FIELD_NUMBER: _ClassVar[int]
    HELD_MS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    incident_id: str
    at_ms: int
    job_id: str
    generation: int
    fault: str
    relapses: int
    held_ms: int
    returns: bool
    maintenance: bool
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., incident_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., job_id: _Optional[str] = ..., generation: _Optional[int] = ..., fault: _Optional[str] = ..., relapses: _Optional[int] = ..., held_ms: _Optional[int] = ..., returns: _Optional[bool] = ..., maintenance: _Optional[bool] = ...) -> None: ...

class HostUncordoned(_message.Message):
    __slots__ = ("host_id", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostReturning(_message.Message):
    __slots__ = ("host_id", "depth", "why", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    depth: str
    why: str
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., depth: _Optional[str] = ..., why: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class HostProbed(_message.Message):
    __slots__ = ("host_id", "passed", "report", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    passed: bool
    report: _probes_pb2.ProbeReport
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., passed: _Optional[bool] = ..., report: _Optional[_Union[_probes_pb2.ProbeReport, _Mapping]] = ..., at_ms: _Optional[int] = ...) -> None: ...

class MaintenancePlanned(_message.Message):
    __slots__ = ("host_id", "reason", "until_ms", "at_ms")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    reason: str
    until_ms: int
    at_ms: int
    def __init__(self, host_id: _Optional[str] = ..., reason: _Optional[str] = ..., until_ms: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class MaintenanceEnded(_message.Message):
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
