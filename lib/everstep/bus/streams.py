"""The durable streams and their limits; what both adapters must agree on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from everstep.core.errors import InvalidInput

DAY_S: Final = 24 * 3600
MAX_AGE_S: Final = 30 * DAY_S  # a consumer that was away for a month starts from projections anyway
# Publishers retry within seconds; what comes back later than this is told by its position.
DUPLICATE_WINDOW_S: Final = 120
MATCHES_KEPT: Final = 16_384  # subjects come again with every message


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A durable stream and the subjects that it stores."""

    name: str
    subject: str


STREAMS: Final = (
    StreamSpec(name="EVERSTEP_EVENTS", subject="everstep.v1.event.>"),
    StreamSpec(name="EVERSTEP_REPORTS", subject="everstep.v1.host.*.report"),
)


def stream_of(subject: str) -> StreamSpec:
    """Return the stream that stores a subject, which may itself hold wildcards.

    Raises:
        InvalidInput: none does.
    """
    for spec in STREAMS:
        if matches(spec.subject, subject):
            return spec
    raise InvalidInput(
        f"no stream stores {subject!r}; they store "
        + " and ".join(f"{spec.subject!r}" for spec in STREAMS)
    )


@lru_cache(maxsize=MATCHES_KEPT)
def matches(pattern: str, subject: str) -> bool:
    """Say whether a subject falls under a pattern: ``*`` is one token, a last ``>`` is the rest."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(given) > index
        if index >= len(given) or part not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
