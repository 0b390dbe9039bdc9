"""Gathers the steps of a host's ranks into one message a step.

At 2,048 hosts the monitor takes 2,048 messages a step and not 16,384. A step waits for all local
ranks, which finish within milliseconds of one another, but not for ever: a rank that hangs must not
hide the others. The first step of a generation and the last of the run leave at once, because
recovery is timed by the one and the other has no successor to hurry it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

GATHER_MS_MAX: Final = 200  # ranks of a host end a step within a few ms; more is a slow rank
# Steps under way at once: ranks of one host are at most one apart; more is a rank that went silent.
STEPS_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Fingerprints of what a rank has computed; the fields of ``Work`` on the wire."""

    forward: int
    gradient: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The fields of ``Rerun`` on the wire."""

    of: int
    own: Work
    other: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The fields of ``Checked`` on the wire."""

    rerun: Rerun | None = None
    local_norm: float = 0.0
    recomputed_wrong: tuple[str, ...] = ()
    own: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One rank's step; the fields of ``RankStep`` on the wire."""

    rank: int
    step: int
    step_time_ms: float
    blocked_ms: float = 0.0
    data_wait_ms: float = 0.0
    stall_ms: float = 0.0
    loss: float = 0.0
    grad_norm: float = 0.0
    tokens: int = 0
    health: str = "ok"
    completed_at_ms: int = 0
    first: bool = False
    kept: bool = False
    durable: bool = False
    schedule_version: int = 0
    position: int = 0
    poisoned: bool = False
    own_ms: float = 0.0
    fingerprints: tuple[tuple[int, int], ...] = ()  # (over, value)
    compared_step: int = 0
    verified_step: int = 0
    shadow_ms: float = 0.0
    checked: Checked | None = None


@dataclass(eq=False, slots=True)
class _Step:
    since_ms: float
    ranks: dict[int, RankStep] = field(default_factory=dict)


class StepGatherer:
    """One generation's steps on one host.

    Args:
        ranks: this host's.
        last_step: of the run.
    """

    def __init__(self, ranks: frozenset[int], last_step: int) -> None:
        self._ranks = ranks
        self._last_step = last_step
        self._steps: dict[int, _Step] = {}

    def add(self, step: RankStep, now_ms: float) -> list[tuple[RankStep, ...]]:
        """Take one rank's step; returns the messages to send now, in order."""
        gathered = self._steps.setdefault(step.step, _Step(now_ms))
        gathered.ranks[step.rank] = step
        ready: list[tuple[RankStep, ...]] = []
        while len(self._steps) > STEPS_MAX:
            ready.append(self._take(min(self._steps)))
        at_once = step.first or step.step >= self._last_step
        if step.step in self._steps and (at_once or self._ranks <= gathered.ranks.keys()):
            ready += [self._take(number) for number in sorted(self._steps) if number <= step.step]
        return ready

    def due(self, now_ms: float) -> list[tuple[RankStep, ...]]:
        """Return what has waited long enough."""
        late = [step for step, one in self._steps.items() if now_ms - one.since_ms >= GATHER_MS_MAX]
        return [self._take(step) for step in sorted(late)]

    def flush(self) -> list[tuple[RankStep, ...]]:
        """Return everything: the generation is over."""
        return [self._take(step) for step in sorted(self._steps)]

    def _take(self, step: int) -> tuple[RankStep, ...]:
        ranks = self._steps.pop(step).ranks
        return tuple(ranks[rank] for rank in sorted(ranks))
