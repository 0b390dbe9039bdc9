"""What a detector concludes: the cause of an incident, and what should be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core.corrections import PositionRange
from everstep.monitor.events import Action
from everstep.monitor.ties import Tie

COLLECTIVE_ERROR: Final = "collective_error"  # of a run whose ranks' collectives failed, no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The root cause and what to do; the fields are those of ``IncidentOpened``.

    ``ties`` may tell later who it was, if nothing does yet.
    ``step`` is the newest completed one where the detector has looked at steps, else -1.
    """

    kind: str
    action: Action
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    reason: str
    failed_at_ms: int
    detail: str = ""
    step: int = -1
    suspect_from_step: int = 0
    skipped: tuple[PositionRange, ...] = ()
    ties: tuple[Tie, ...] = ()
