"""Quantities as people write them: ``120s``, ``50000h``, ``400e9``, ``6.4TB``, ``400Gb/s``.

A table of a few units and not a units library: in those ``m`` is a metre and ``5 s x 2 h`` is a
sensible value, while here a minute is meant and each option takes one dimension. A time without a
unit is refused, because 120 seconds and 120 hours are both common. Links are sold in
bits and storage in bytes: ``Gb/s`` is an eighth of ``GB/s``, and what could be either is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from everstep.core.errors import InvalidInput

NUMBER: Final = re.compile(
    r"\s*(?P<number>[+-]?((\d{1,3}(,\d{3})+|\d[\d_]*)\.?\d*|\.\d+)(e[+-]?\d+)?"
    r"|nan|[+-]?inf(inity)?)"
    r"\s*(?P<unit>[A-Za-zµ%/]*)\s*",
    re.IGNORECASE,
)
# Above a trillion trillions, and below its inverse, nothing is planned; products and squares of a
# few such numbers are still numbers.
VALUE_MAX: Final = 1e24
DIGITS: Final = 4  # of what people read: the inputs are hardly known to three


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """What an option measures.

    Attributes:
        name: as in "a time".
        units: spelling -> factor to the base unit; the first of equal factors is written.
        written: the units that ``text`` chooses from, smallest first.
        unitless: whether a bare number is taken, in the base unit.
        examples: for messages.
        fold_case: whether ``gb`` is ``GB``; not where ``m`` and ``M`` differ. Of two units that
            differ in case alone the first is meant by any other spelling.
        bits: what may mean bits and is refused, unless it is one of the units as it is written.
        maximum: the largest that makes sense.
    """

    name: str
    units: Mapping[str, float]
    written: tuple[str, ...]
    unitless: bool
    examples: str
    fold_case: bool = False
    bits: str = ""
    maximum: float = VALUE_MAX
    _folded: dict[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the look-up."""
        folded: dict[str, float] = {}
        for unit, factor in self.units.items():
            folded.setdefault(unit.casefold() if self.fold_case else unit, factor)
        object.__setattr__(self, "_folded", folded)

    def parse(self, text: str) -> float:
        """Return the value in the base unit.

        Raises:
            InvalidInput: with one sentence that says what is wrong and what to write.
        """
        found = NUMBER.fullmatch(text)
        if found is None and "," in text:
            raise InvalidInput(
                f"{text!r} is not {self.name}: a comma stands between thousands (16,384), and a "
                "point before decimals (1.5)"
            )
        if found is None:
            raise InvalidInput(f"{text!r} is not {self.name}: write for example {self.examples}")
        unit = found["unit"]
        factor = self._factor(unit)
        if unit and factor is not None and self._may_be_bits(unit):
            raise InvalidInput(f"{unit!r} in {text!r} may mean bits: write {self._clearer(unit)}")
        if not unit and not self.unitless:
            raise InvalidInput(f"{text!r} has no unit: write for example {self.examples}")
        if unit and factor is None:
            known = ", ".join(self.units)
            raise InvalidInput(f"{unit!r} in {text!r} is no unit of {self.name}: one of {known}")
        number = float(re.sub("[_,]", "", found["number"]))
        value = number * (1.0 if factor is None else factor)
        if not math.isfinite(value) or value < 0:
            raise InvalidInput(f"{text!r} is out of range: {self.name} is finite and not negative")
        if value > self.maximum:
            raise InvalidInput(f"{text!r} is out of range: {self.name} is at most {self.maximum:g}")
        least = 1 / VALUE_MAX
        if 0 < value < least:
            raise InvalidInput(f"{text!r} is out of range: {self.name} is 0 or above {least:g}")
        return value

    def _factor(self, unit: str) -> float | None:
        folded = unit.casefold() if self.fold_case else unit
        return self.units.get(unit, self._folded.get(folded))

    def _may_be_bits(self, unit: str) -> bool:
        return unit not in self.units and re.fullmatch(self.bits, unit) is not None

    def _clearer(self, unit: str) -> str:
        """Return which units could be meant by one that may be bits or bytes."""
        both = [one for one in self.units if one.casefold() == unit.casefold()]
        return " or ".join(
            f"{one} for {meant}" for one, meant in zip(both, ("bytes", "bits"), strict=False)
        )

    def text(self, value: float) -> str:
        """Return the value in the unit that a person would choose, to four digits or whole."""
        if not self.written:
            return _rounded(value)
        base = next(unit for unit, factor in self.units.items() if factor in (1.0, 0.01))
        chosen = base if value == 0 else self.written[0]
        for unit in self.written[1:]:
            if value >= self.units[unit]:
                chosen = unit
        return f"{_rounded(value / self.units[chosen])} {chosen}"


def _rounded(value: float) -> str:
    """Return a number to four digits, without an exponent where that is readable."""
    if value == int(value) and value < 1e7:  # a count is never rounded
        return f"{value:,.0f}"
    rounded = float(f"{value:.{DIGITS}g}")
    if rounded and not 1e-3 <= rounded < 1e7:  # seven digits are read at a glance
        return f"{rounded:.{DIGITS}g}"
    places = DIGITS + 2  # of 0.001 and more, so many hold the four digits
    return f"{rounded:,.{places}f}".rstrip("0").rstrip(".")


def _with_prefixes(unit: str) -> dict[str, float]:
    """Return decimal and binary multiples of a unit of bytes."""
    letters = ("k", "M", "G", "T", "P")
    decimal = {f"{letter}{unit}": 1000.0 ** (i + 1) for i, letter in enumerate(letters)}
    binary = {f"{x.upper()}i{unit}": 1024.0 ** (i + 1) for i, x in enumerate(letters)}
    return {unit: 1.0} | decimal | binary


def _of_bits() -> dict[str, float]:
    """Return the units that links are sold in; smaller ones carry no checkpoint."""
    return {
        f"{letter}{bits}/s": 1000.0**power / 8
        for bits in ("b", "bit")
        for letter, power in (("M", 2), ("G", 3), ("T", 4))
    }


TIME: Final = Dimension(
    name="a time",
    units={
        "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0,
        "y": 31_557_600.0,
    },
    written=("ms", "s", "h", "d"),
    unitless=False,
    examples="5s, 2m, 3h or 64d",
    maximum=1e15,  # 30 million years: beyond, one is nothing beside it, and formulas lose it
)  # fmt: skip
COUNT: Final = Dimension(
    name="a number",
    units={"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15},
    written=(),
    unitless=True,
    examples="16384, 400e9, 400B or 15T",
)
BYTES: Final = Dimension(
    name="a size",
    units=_with_prefixes("B"),
    written=("B", "kB", "MB", "GB", "TB", "PB"),
    unitless=True,
    examples="390MB, 6.4TB or 1GiB",
    fold_case=True,
    bits="[A-Z]i?b",  # nobody measures a file in bits: small letters throughout are haste
)
RATE: Final = Dimension(
    name="a bandwidth",
    units=_with_prefixes("B/s") | _of_bits(),
    written=("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
    unitless=False,
    examples="500GB/s, 25GiB/s or 400Gb/s",
    fold_case=True,
    bits="[A-Za-z]*b/[Ss]",
)
SHARE: Final = Dimension(
    name="a share",
    units={"%": 0.01},
    written=("%",),
    unitless=True,
    examples="0.4 or 40%",
    maximum=1.0,
)
