"""Says what a campaign file's fields may hold, and in its author's words what is wrong. Pure.

As errors of a job spec do: the field's path, what is expected there, and what was given.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from everstep.core.errors import InvalidInput

RANDOM: Final = "random"
FOR_S_MAX: Final = 604_800.0  # a week: longer than anybody waits for a verdict
PERCENT_MAX: Final = 10_000.0  # a hundred times slower; beyond that it is a `stop`
FACTOR_MAX: Final = 1e6  # of parameters of about 1: float32 squares it without an infinity
DELAY_MS_MAX: Final = 600_000  # later than every deadline of the control plane
COUNT_MAX: Final = 1_000_000  # batches or steps in a row
NUMBER_MAX: Final = 2**63 - 1  # what messages and tables hold
BIT_MAX: Final = 63  # of the widest element, eight bytes; narrower ones are known to ranks alone
GOT_CHARACTERS_MAX: Final = 60  # enough to recognise a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What a field may hold: in words, and as a rule."""

    expected: str
    fits: Callable[[Any], bool]


def read_fields(
    given: Any, fields: Mapping[str, Field], where: str, *, required: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a mapping whose fields are all known and right.

    Args:
        given: as read from YAML.
        fields: that it may have.
        where: its path; "": the whole file.
        required: fields that it must have.

    Raises:
        InvalidInput: one line for each wrong field.
    """
    begin = f"{where}." if where else ""
    if not isinstance(given, Mapping):
        what = where or "the campaign"
        raise InvalidInput(f"{what}: expected a mapping with {', '.join(fields)}, got {got(given)}")
    problems = []
    for name, value in given.items():
        field = fields.get(str(name))
        if field is None:
            problems.append(f"{begin}{name}: unknown field; {_suggestion(str(name), fields)}")
        elif not field.fits(value):
            problems.append(f"{begin}{name}: expected {field.expected}, got {got(value)}")
    problems += [
        f"{begin}{name}: expected {fields[name].expected}, got nothing"
        for name in required
        if name not in given
    ]
    if problems:
        raise InvalidInput("\n  ".join(problems))
    return dict(given)


def got(value: object) -> str:
    """Return a value as its author has written it, if it is short."""
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case float() if not math.isfinite(value):
            return f".{value}".replace(".-", "-.")  # as YAML writes it
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= GOT_CHARACTERS_MAX else f"{text[:GOT_CHARACTERS_MAX]}..."


def _suggestion(name: str, fields: Mapping[str, Field]) -> str:
    close = difflib.get_close_matches(name, list(fields), n=1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(fields)}"


def _whole(least: int, most: int, *, or_random: bool = False) -> Field:
    upper = f"from {least} to {most}" if most < NUMBER_MAX else f"of at least {least}"
    return Field(
        expected=f"a whole number {upper}{', or random' if or_random else ''}",
        fits=lambda given: (
            (or_random and given == RANDOM) or (_is_number(given, int) and least <= given <= most)
        ),
    )


def _number(least: float, most: float, *, above: bool = False) -> Field:
    """Finite, since no bound holds for what is no number; ``above``: not ``least`` itself."""
    lower = f"above {least:g} and at most" if above else f"from {least:g} to"
    return Field(
        expected=f"a number {lower} {most:.0f}",
        fits=lambda given: (
            _is_number(given, int, float)
            and least <= given <= most
            and not (above and given == least)
        ),
    )


def _is_number(given: Any, *kinds: type) -> bool:
    return isinstance(given, kinds) and not isinstance(given, bool)


def _is_window(given: Any) -> bool:
    if not isinstance(given, list | tuple) or len(given) != 2:
        return False
    return all(_is_number(one, int) for one in given) and 0 <= given[0] <= given[1] <= NUMBER_MAX


def _texts(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)


TEXT: Final = Field(expected="text", fits=lambda given: isinstance(given, str))
_FLAG: Final = Field(expected="true or false", fits=lambda given: isinstance(given, bool))
CAMPAIGN: Final[Mapping[str, Field]] = {
    "version": Field(expected="a whole number", fits=lambda given: _is_number(given, int)),
    "name": TEXT,
    "seed": Field(expected="a whole number", fits=lambda given: _is_number(given, int)),
    "window": Field(
        expected="a list of the first and the last step, such as [5, 40]", fits=_is_window
    ),
    "faults": Field(
        expected="a list of faults, each a mapping",
        fits=lambda given: isinstance(given, list | tuple),
    ),
    "random": Field(
        expected="a mapping with count and kinds", fits=lambda given: isinstance(given, Mapping)
    ),
}
DRAWN: Final[Mapping[str, Field]] = {
    "count": _whole(1, NUMBER_MAX),
    "kinds": Field(
        expected="a list of kinds of faults, at least one",
        fits=lambda given: _texts(given) and len(given) > 0,
    ),
}
# What every fault may say.
COMMON: Final[Mapping[str, Field]] = {
    "kind": Field(
        expected="the name of a kind of fault (`everstep chaos kinds` lists them)",
        fits=lambda given: isinstance(given, str),
    ),
    "rank": _whole(0, NUMBER_MAX, or_random=True),
    "host": Field(
        expected="a host's name, or random",
        fits=lambda given: isinstance(given, str) and bool(given),
    ),
    "service": Field(expected="a service's name", fits=lambda given: isinstance(given, str)),
    "at_step": _whole(0, NUMBER_MAX, or_random=True),
    "after_s": _number(0, FOR_S_MAX),
    "for_s": _number(0, FOR_S_MAX, above=True),
}
# What some kinds take, by name; the bounds are those within which something happens at all.
OPTIONS: Final[Mapping[str, Field]] = {
    "percent": _number(0, PERCENT_MAX, above=True),
    "share": _number(0, 1, above=True),
    "factor": _number(-FACTOR_MAX, FACTOR_MAX),
    "delay_ms": _whole(1, DELAY_MS_MAX),
    "batches": _whole(1, COUNT_MAX),
    "steps": _whole(1, COUNT_MAX),
    "element": _whole(-1, NUMBER_MAX),
    "bit": _whole(-1, BIT_MAX),
    "tensor": TEXT,
    "message": TEXT,
    **dict.fromkeys(("sleep", "nats", "peers", "cut"), _FLAG),
}
