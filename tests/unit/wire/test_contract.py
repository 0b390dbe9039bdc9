"""Every event and command that has a wire message fits it, in names and in values."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import itertools
import types
import typing
from typing import Any

import msgspec
import pytest
from google.protobuf import symbol_database
from google.protobuf.message import Message as ProtoMessage
from tests.fields import field_names

from everstep.core.record import Record
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import (  # noqa: F401 - importing registers their messages
    agents_pb2,
    checkpoints_pb2,
    hosts_pb2,
    incidents_pb2,
    jobs_pb2,
)
from everstep.wire.v1.envelope_pb2 import EventEnvelope

SERVICES = ("controller", "monitor", "checkpoint_registry", "host_inventory")
PUBLIC_EVENTS = {
    field.message_type.name for field in EventEnvelope.DESCRIPTOR.oneofs_by_name["payload"].fields
}


def wire_class(name: str) -> type[ProtoMessage] | None:
    """The generated class of a message, if there is one."""
    try:
        return symbol_database.Default().GetSymbol(f"everstep.v1.{name}")
    except KeyError:
        return None


def is_value(kind: Any) -> bool:
    """Whether it is one of our classes of values: a dataclass or a record."""
    record = isinstance(kind, type) and issubclass(kind, Record)
    return dataclasses.is_dataclass(kind) or record


def values_of(service: str, module: str) -> list[type[Any]]:
    """The classes of values that a service's module defines."""
    imported: types.ModuleType = importlib.import_module(f"everstep.{service}.{module}")
    return [
        value
        for value in vars(imported).values()
        if is_value(value) and value.__module__ == imported.__name__
    ]


PAIRS = [
    pytest.param(kind, wire, id=f"{service}.{kind.__name__}")
    for service in SERVICES
    for module in ("events", "commands")
    for kind in values_of(service, module)
    if (wire := wire_class(kind.__name__)) is not None
]


def added_by_shell(kind: type[Any], wire: type[ProtoMessage]) -> dict[str, Any]:
    """Fields of ours that a message has not, with their defaults."""
    names = [name for name in field_names(kind) if name not in wire.DESCRIPTOR.fields_by_name]
    if names:
        assert dataclasses.is_dataclass(kind), "records have the fields of their messages"
    defaults = {field.name: field.default for field in dataclasses.fields(kind)} if names else {}
    return {name: defaults[name] for name in names}


def sample(kind: Any, count: itertools.count[int]) -> Any:
    """A value of the type in which no two fields are alike."""
    if is_value(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: sample(hints[name], count) for name in field_names(kind)})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return sample(arguments[0], count)
    if origin is tuple:
        members = arguments[:1] * 2 if arguments[-1] is Ellipsis else arguments
        return tuple(sample(member, count) for member in members)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[-1]
    return {int: int, float: lambda n: n + 0.5, str: "text-{}".format, bool: bool}[kind](
        next(count)
    )


@pytest.mark.parametrize(("kind", "wire"), PAIRS)
def test_class_and_message_have_the_same_fields(kind: type[Any], wire: type[ProtoMessage]) -> None:
    """The message has no field more; a command may have some that the shell fills in."""
    ours = set(field_names(kind))
    extra = added_by_shell(kind, wire)
    assert ours - set(extra) == set(wire.DESCRIPTOR.fields_by_name)
    if kind.__module__.endswith(".events"):
        assert not extra, "an event is published with all that it says"
    assert dataclasses.MISSING not in extra.values(), "it could not be read from the wire"


@pytest.mark.parametrize(("kind", "wire"), PAIRS)
def test_value_survives_the_wire(kind: type[Any], wire: type[ProtoMessage]) -> None:
    """What a service sends is what another one reads, down to nested fields."""
    extra = added_by_shell(kind, wire)
    value = sample(kind, itertools.count(1))
    if extra:
        value = dataclasses.replace(value, **extra)
    data = {k: v for k, v in msgspec.to_builtins(value).items() if k not in extra}
    sent = to_wire(data, wire()).SerializeToString()
    assert from_wire(wire.FromString(sent), kind) == value


def test_every_public_event_is_somebodys() -> None:
    """The envelope has no field that no service can fill."""
    ours = {kind.__name__ for service in SERVICES for kind in values_of(service, "events")}
    assert ours >= PUBLIC_EVENTS, PUBLIC_EVENTS - ours


@pytest.mark.parametrize("service", SERVICES)
def test_envelope_fields_are_named_after_stored_types(service: str) -> None:
    """``host_cordoned.v1`` is published as ``host_cordoned``; a typo would keep it at home."""
    codec_module = importlib.import_module(f"everstep.{service}.codec")
    codecs = [v for v in vars(codec_module).values() if type(v).__name__ == "EventCodec"]
    fields = EventEnvelope.DESCRIPTOR.fields_by_name
    assert codecs
    for codec in codecs:
        for type_name, kind in codec.types.items():
            field = fields.get(type_name.partition(".")[0])
            assert (field is not None) == (kind.__name__ in PUBLIC_EVENTS), type_name
            if field is not None:
                assert field.message_type.name == kind.__name__
