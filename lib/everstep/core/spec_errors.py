"""Says what is wrong with a job spec in the words of its author: field, expected, got.

pydantic's own messages speak of its types and carry links; a person who has mistyped a field wants
the field's path and what belongs there. What belongs there is read off the JSON schema, so that a
new field needs no sentence of its own.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

GOT_CHARACTERS_MAX: Final = 60  # enough to recognise a value; a pasted file would bury the path
# What messages and tables hold: no person has asked for it as a limit, so it is named only when it
# is what is wrong.
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UNKNOWN_FIELD: Final = frozenset({"extra_forbidden", "invalid_key"})

Schema = Mapping[str, Any]


def spec_problems(errors: Sequence[Mapping[str, Any]], schema: Schema) -> list[str]:
    """Return one sentence for each wrong field.

    Args:
        errors: what ``ValidationError.errors()`` returns.
        schema: the JSON schema of the whole document.
    """
    return [_sentence(error, schema) for error in errors]


def joined(problems: Sequence[str]) -> str:
    """Return a message of one line for one problem, of a line each for several."""
    if len(problems) == 1:
        return f"invalid job spec: {problems[0]}"
    return "\n  ".join(["invalid job spec:", *problems])


def _sentence(error: Mapping[str, Any], schema: Schema) -> str:
    path = [str(part) for part in error["loc"]]
    where = ".".join(path)
    kind = error["type"]
    if kind in UNKNOWN_FIELD:
        return f"{where}: unknown field; {_suggestion(path, schema)}"
    if kind == "value_error":  # a rule of ours: its sentence is meant for people
        return f"{where}: {error['ctx']['error']}" if where else str(error["ctx"]["error"])
    if kind == "json_invalid":
        return f"expected JSON, got something else ({error['ctx']['error']})"
    got = "nothing" if kind == "missing" else _got(error["input"])
    hint = ""
    if kind == "string_type" and isinstance(error["input"], int | float):
        hint = " (put it in quotes)"
    if isinstance(error["input"], int) and not INT64_MIN <= error["input"] <= INT64_MAX:
        hint = " (it has more than 64 bits)"
    expected = f"expected {_expected(_at(path, schema), schema)}, got {got}{hint}"
    return f"{where}: {expected}" if where else expected


def _suggestion(path: Sequence[str], schema: Schema) -> str:
    """Return the known field that was probably meant, else all that there are at this place."""
    name = path[-1]
    siblings = list(_at(path[:-1], schema).get("properties", {}))
    close = difflib.get_close_matches(name, siblings, n=1)
    if close:
        return f"did you mean {'.'.join([*path[:-1], close[0]])}?"
    elsewhere = [known for known in _paths(schema, schema) if known[-1] == name]
    if elsewhere:
        return f"did you mean {'.'.join(elsewhere[0])}?"
    return f"expected one of {', '.join(siblings)}"


def _paths(part: Schema, schema: Schema, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in _resolved(part, schema).get("properties", {}).items():
        yield (*above, name)
        yield from _paths(field, schema, (*above, name))


def _at(path: Sequence[str], schema: Schema) -> Schema:
    """Return the schema of the field at ``path``; of any text where it knows no more."""
    part = _resolved(schema, schema)
    for name in path:
        if name in part.get("properties", {}):
            part = part["properties"][name]
        elif isinstance(part.get("additionalProperties"), Mapping):
            part = part["additionalProperties"]
        else:
            part = part.get("items", {"type": "string"})
        part = _resolved(part, schema)
    return part


def _resolved(part: Schema, schema: Schema) -> Schema:
    """Follow references, and look past ``or null``."""
    for choice in part.get("anyOf", ()):
        if choice.get("type") != "null":
            return _resolved(choice, schema)
    reference = part.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else part


def _expected(part: Schema, schema: Schema) -> str:
    if "const" in part:
        return repr(part["const"])
    if "enum" in part:
        return " or ".join(map(str, part["enum"]))
    match part.get("type"):
        case "integer" | "number":
            return _number(part)
        case "boolean":
            return "true or false"
        case "array":
            return f"a list, each item {_expected(_resolved(part['items'], schema), schema)}"
        case "object" if "properties" in part:
            return f"a mapping with {', '.join(part['properties'])}"
        case "object":
            return "a mapping of names to values"
        case _:
            longest = part.get("maxLength")
            if longest is not None:
                return f"text of {part.get('minLength', 0)} to {longest} characters"
            return "text" if "minLength" not in part else "text that is not empty"


def _number(part: Schema) -> str:
    what = "a whole number" if part["type"] == "integer" else "a number"
    least, most = part.get("minimum"), part.get("maximum")
    least = None if least == INT64_MIN else least
    most = None if most == INT64_MAX else most
    if "exclusiveMinimum" in part:
        return f"{what} above {part['exclusiveMinimum']:g}"
    if least is None:
        return what
    return (
        f"{what} from {least:g} to {most:.0f}"
        if most is not None
        else f"{what} of at least {least:g}"
    )


def _got(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= GOT_CHARACTERS_MAX else f"{text[:GOT_CHARACTERS_MAX]}..."
