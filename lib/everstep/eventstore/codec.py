"""Names stored events and turns them into JSON-ready mappings and back.

The table is explicit (``"host_cordoned.v1" -> HostCordoned``) so that renaming a class never
changes what is stored. Fields are only added, with defaults; a changed meaning gets a new version
and an upcaster from the old one. Rejected: names derived from classes, which a refactoring breaks
silently.

What JSONB cannot hold is replaced on the way in, because an event that cannot be stored stops a
service for good: non-finite floats become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` (protobuf's
JSON spelling; they decode to floats again), NUL and lone surrogates in text become U+FFFD.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from everstep.core.errors import CorruptData

E = TypeVar("E")

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
_TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.v[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcaster:
    """Rewrites the data of an old version; ``to`` is the type name that it then has."""

    to: str
    rewrite: Callable[[Mapping[str, Any]], Mapping[str, Any]]


class EventCodec(Generic[E]):
    """The stored form of one closed union of events."""

    def __init__(
        self, types: Mapping[str, type[Any]], *, upcasters: Mapping[str, Upcaster] | None = None
    ) -> None:
        """Check the table.

        Args:
            types: current type names, e.g. ``host_cordoned.v1``, and their classes, one to one.
            upcasters: old type names and how to reach a newer one; chains are followed.
        """
        self._types = dict(types)
        self._upcasters = dict(upcasters or {})
        self._names = {kind: name for name, kind in self._types.items()}
        for name in (*self._types, *self._upcasters):
            assert _TYPE_NAME.fullmatch(name), f"{name!r} is not snake_case.vN"
        assert len(self._names) == len(self._types), "two type names share a class"
        for old, upcaster in self._upcasters.items():
            assert old not in self._types, f"{old} is both current and old"
            assert upcaster.to in self._types or upcaster.to in self._upcasters, (
                f"{old} is upcast to {upcaster.to}, which is unknown"
            )

    @property
    def types(self) -> Mapping[str, type[Any]]:
        """Current type names and their classes."""
        return self._types

    def knows(self, type_name: str) -> bool:
        """Say whether ``decode`` understands the type, current or old."""
        return type_name in self._types or type_name in self._upcasters

    def encode(self, event: E) -> tuple[str, dict[str, Any]]:
        """Return the type name and the JSON-ready data of an event.

        Raises:
            KeyError: the event's class is not in the table.
        """
        name = self._names.get(type(event))
        if name is None:
            raise KeyError(
                f"{type(event).__name__} is not in the codec's table; "
                f"it has {', '.join(sorted(self._types))}"
            )
        return name, _json_ready(event)

    def decode(self, type_name: str, data: Mapping[str, Any]) -> E:
        """Build the event from what is stored, upcasting an old version first.

        Raises:
            CorruptData: the type is unknown, or the data does not fit its class.
        """
        name, current = self.upcast(type_name, data)
        try:
            event: E = msgspec.convert(current, self._types[name], strict=False)
        except msgspec.ValidationError as error:
            raise CorruptData(f"stored {name} does not fit its class: {error}") from error
        return event

    def upcast(self, type_name: str, data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the current type name and data of a stored event.

        Raises:
            CorruptData: the type is unknown.
        """
        while (upcaster := self._upcasters.get(type_name)) is not None:
            type_name, data = upcaster.to, upcaster.rewrite(data)
        if type_name not in self._types:
            raise CorruptData(
                f"unknown event type {type_name!r}; known are {', '.join(sorted(self._types))}: "
                "was it stored by a newer version of this service?"
            )
        return type_name, data


def _json_ready(event: Any) -> dict[str, Any]:
    """Return ``storable(msgspec.to_builtins(event))``, mostly without walking through the data.

    What the C encoder writes and reads again is storable, unless it met what JSONB refuses: NUL is
    escaped, a non-finite float becomes null, and a lone surrogate stops it. A placement of 2,048
    hosts takes a quarter of the time so (benchmarks/inventory.py).
    """
    try:
        text = msgspec.json.encode(event)
    except UnicodeEncodeError:
        text = b""
    if not text or b"\\u0000" in text or b"null" in text:
        walked: dict[str, Any] = storable(msgspec.to_builtins(event))
        return walked
    return msgspec.json.decode(text, type=dict[str, Any])


def storable(value: Any) -> Any:
    """Return JSON-ready data with what JSONB refuses replaced (see the top of this module)."""
    match value:
        case dict():
            return {_text(str(key)): storable(item) for key, item in value.items()}
        case list() | tuple():
            return [storable(item) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str():
            return _text(value)
        case _:
            return value


def _text(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)
