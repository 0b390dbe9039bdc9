"""Says what is wrong with a request in the words in which all other refusals are.

The library's own sentences ("Input should be a valid integer, unable to parse string as an
integer") name neither what came nor, often, what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, Final

SAID_CHARS_MAX: Final = 60  # of what came; a whole document would bury the sentence

# By the library's name of the problem; values in braces are its own, and what came.
_EXPECTED: Final = {
    "enum": "{expected}",
    "literal_error": "{expected}",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} items",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of no more than 64 bits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_OF_LENGTH: Final = frozenset({"string_too_long", "string_too_short", "too_long", "too_short"})


def request_problems(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return one line that names each wrong value, what was expected, and what came.

    Args:
        errors: what ``RequestValidationError.errors()`` returns.
    """
    return "; ".join(_sentence(error) for error in errors)


def unknown_parameters(asked: Iterable[str], known: Sequence[str]) -> str:
    """Say which query parameters a route does not have, and which it has; "" for none."""
    strange = sorted(set(asked) - set(known))
    if not strange:
        return ""
    names = ", ".join(repr(name[:SAID_CHARS_MAX]) for name in strange)
    there = f"there are: {', '.join(known)}" if known else "this route takes none"
    return f"query.{names}: unknown parameter; {there}"


def _sentence(error: Mapping[str, Any]) -> str:
    where = _where(error["loc"])
    kind, context = error["type"], error.get("ctx") or {}
    match kind:
        case "missing":
            return f"{where}: is missing"
        case "extra_forbidden":
            return f"{where}: unknown field"
        case "json_invalid":
            return f"expected JSON, got something else ({context.get('error', '')})"
        case "value_error":
            return f"{where}: {context.get('error', error['msg'])}"
        case _ if kind in _EXPECTED:
            return f"{where}: expected {_EXPECTED[kind].format(**context)}, got {_got(error)}"
        case _:
            return f"{where}: {error['msg']}"


def _where(path: Sequence[Any]) -> str:
    """Name a value as its sender does: a field of the body by itself, others by their place."""
    parts = [str(part) for part in path]
    if len(parts) > 1 and parts[0] in {"body", "path"}:
        parts = parts[1:]
    return ".".join(parts)


def _got(error: Mapping[str, Any]) -> str:
    value = error.get("input")
    if error["type"] in _OF_LENGTH and isinstance(value, Sized):
        return str(len(value))
    said = repr(value)
    return said if len(said) <= SAID_CHARS_MAX else f"{said[: SAID_CHARS_MAX - 3]}..."
