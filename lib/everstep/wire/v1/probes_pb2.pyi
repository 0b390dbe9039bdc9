from everstep.wire.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExamineHost(_message.Message):
    __slots__ = ("examination_id", "depth", "burn_in_s", "partner")
    EXAMINATION_ID_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    BURN_IN_S_FIELD_NUMBER: _ClassVar[int]
    PARTNER_FIELD_NUMBER: _ClassVar[int]
    examination_id: str
    depth: str
    burn_in_s: int
    partner: PartnerHost
    def __init__(self, examination_id: _Optional[str] = ..., depth: _Optional[str] = ..., burn_in_s: _Optional[int] = ..., partner: _Optional[_Union[PartnerHost, _Mapping]] = ...) -> None: ...

class PartnerHost(_message.Message):
    __slots__ = ("host_id", "address", "port")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host_id: str
    address: str
    port: int
    def __init__(self, host_id: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ExamineHostReply(_message.Message):
    __slots__ = ("outcome", "host_id", "agent_epoch", "report")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    host_id: str
    agent_epoch: str
    report: ProbeReport
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, _Mapping]] = ..., host_id: _Optional[str] = ..., agent_epoch: _Optional[str] = ..., report: _Optional[_Union[ProbeReport, _Mapping]] = ...) -> None: ...

class ProbeReport(_message.Message):
    __slots__ = ("examination_id", "depth", "at_ms", "duration_ms", "probes")
    EXAMINATION_ID_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    examination_id: str
    depth: str
    at_ms: int
    duration_ms: int
    probes: _containers.RepeatedCompositeFieldContainer[ProbeResult]
    def __init__(self, examination_id: _Optional[str] = ..., depth: _Optional[str] = ..., at_ms: _Optional[int] = ..., duration_ms: _Optional[int] = ..., probes: _Optional[_Iterable[_Union[ProbeResult, _Mapping]]] = ...) -> None: ...

class ProbeResult(_message.Message):
    __slots__ = ("name", "where", "verdict", "detail", "duration_ms", "figures")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    name: str
    where: str
    verdict: str
    detail: str
    duration_ms: int
    figures: _containers.RepeatedCompositeFieldContainer[Figure]
    def __init__(self, name: _Optional[str] = ..., where: _Optional[str] = ..., verdict: _Optional[str] = ..., detail: _Optional[str] = ..., duration_ms: _Optional[int] = ..., figures: _Optional[_Iterable[_Union[Figure, _Mapping]]] = ...) -> None: ...

class Figure(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
