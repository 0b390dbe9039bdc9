"""The names of a value's fields, whichever way its class is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's or a dataclass's fields, in their order."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind))
