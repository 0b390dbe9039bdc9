"""Turns our frozen dataclasses into wire messages of the same name and back.

A command or event and its .proto message carry the same field names, so one converter serves all of
them; ``tests/unit/wire`` compares every pair. Rejected: a hand-written mapping for each type, which
is what drifts.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as ProtoMessage

T = TypeVar("T")
P = TypeVar("P", bound=ProtoMessage)


def to_wire(value: Any, message: P) -> P:
    """Fill ``message`` from a dataclass (or a mapping) with the same field names.

    The message's constructor takes nested mappings and enum names and is 25 times faster than the
    JSON reader, which matters for placements of 2,048 hosts (benchmarks/inventory.py). What only
    JSON spells that way (``"NaN"``, numbers and bytes as text) is left to the JSON reader.
    """
    fields = msgspec.to_builtins(value)
    try:
        message.MergeFrom(type(message)(**fields))
    except (TypeError, ValueError):
        return ParseDict(fields, message)
    return message


def from_wire(message: ProtoMessage, kind: type[T]) -> T:
    """Build ``kind`` from a message with the same field names.

    Raises:
        msgspec.ValidationError: a field does not fit its type.
    """
    return msgspec.convert(to_builtins(message), kind, strict=False)


def to_builtins(message: ProtoMessage) -> dict[str, Any]:
    """Return every field under its own name; 64-bit integers become decimal strings."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
