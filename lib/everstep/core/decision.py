"""What a decider answers: the events that follow from a command, or why it is refused.

An empty ``Accepted`` means "already so": every command may be sent again. A refusal is a value and
not an exception, because refusing is an ordinary answer that callers must look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[E_co]):
    """The command holds; ``events`` are what it changes (none: already so)."""

    events: tuple[E_co, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The command is refused.

    Args:
        why: a stable code for programs, e.g. ``unknown_host``.
        detail: one sentence for a person: ids, expected and got, what to do next.
    """

    why: str
    detail: str = ""
