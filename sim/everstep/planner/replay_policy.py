"""What a replay may change: the answers to failures, not the failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done about failures; None: as it was.

    Attributes:
        interval_ms: work between two saves in memory.
        restart_ms: from a verdict to training, without waits for hosts.
        detection_ms: from a failure to its verdict.
        repair_ms: from a host's loss until it can serve again.
        spares: hosts that stand by at the begin.
        straggler_share: a spell that slows steps by so much or more is ended by a restart.
        no_spare: what is done when no spare is left: wait for a host, or go on with fewer replicas.
    """

    interval_ms: int | None = None
    restart_ms: int | None = None
    detection_ms: int | None = None
    repair_ms: int | None = None
    spares: int | None = None
    straggler_share: float | None = None
    no_spare: Literal["wait", "elastic"] | None = None


AS_IT_WAS: Final = Policy()
