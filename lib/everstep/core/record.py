"""A base for values that are made by the thousand.

A frozen dataclass sets its fields through ``object.__setattr__`` and takes ten times as long to
make as a ``msgspec.Struct`` (seen: 0.5 against 0.045 microseconds for four fields). Where a
decision about 2,048 hosts makes several for each host, that was a third of its time. Everything
else is a frozen dataclass.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

R = TypeVar("R", bound="Record")


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Frozen, equal by its fields, hashable; give subclasses ``frozen=True, kw_only=True``.

    The garbage collector does not look into it: it may hold numbers, text, other records, and
    tuples of these, never anything that could lead back to it.
    """


def changed(record: R, **fields: Any) -> R:
    """Return a copy with some fields changed, as ``dataclasses.replace`` does for dataclasses."""
    return msgspec.structs.replace(record, **fields)
