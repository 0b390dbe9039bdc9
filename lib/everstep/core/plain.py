"""Which values a spec can hold: those that JSON and a table keep as they are.

YAML knows more: numbers that are not finite, bytes, names that are numbers. Each would reach the
ranks as something else than what was written, so it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

DEPTH_MAX: Final = 50  # nobody reads more; a mapping that holds itself has no end
VALUES_MAX: Final = 100_000  # beyond any spec; a few lines of YAML can name a value 9^9 times


def unkeepable(document: Any) -> str:
    """Return what of a decoded YAML or JSON document cannot be kept, and where; "" for nothing."""
    for count, (path, value, depth) in enumerate(_values(document, "", 0)):
        if count >= VALUES_MAX:
            return f"expected at most {VALUES_MAX} values, got more"
        if problem := _problem(value, depth):
            return f"{path}: {problem}" if path else problem
    return ""


def _problem(value: Any, depth: int) -> str:
    if depth > DEPTH_MAX:
        return f"expected at most {DEPTH_MAX} levels, got more"
    match value:
        case float() if not math.isfinite(value):
            return f"expected a finite number, got {value}"
        case str() if any(one == "\0" or "\ud800" <= one <= "\udfff" for one in value):
            return "expected text, got characters that text cannot have"
        case bytes() | set():
            return f"expected text, a number, a list or a mapping, got {type(value).__name__}"
        case dict():
            other = next((key for key in value if not isinstance(key, str)), None)
            return "" if other is None else f"expected text as a name, got {other} (quote it)"
    return ""


def _values(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any, int]]:
    yield path, value, depth
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        if isinstance(name, str):
            yield path, name, depth
        yield from _values(item, f"{path}.{name}" if path else str(name), depth + 1)
