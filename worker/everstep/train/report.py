"""What a rank tells about each step, and the stop watch that it is told from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.core.system import Clock

HEALTH_OK: Final = "ok"
HEALTH_SKIPPED: Final = "skipped_non_finite"
NO_SLOT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One completed step, as it is reported.

    Args:
        step: completed steps.
        loss: mean over the global batch; NaN when nobody gave one.
        grad_norm: global, before clipping.
        tokens: of the global batch.
        health: "ok" or "skipped_non_finite".
        step_time_ms: since the last step was completed.
        blocked_ms: of it, in the step's collective.
        data_wait_ms: of it, making the batch.
        stall_ms: of it, snapshotting.
        completed_at_ms: since the epoch.
        first: first step of this generation.
        snapshot_slot: memory slot written at this step, -1 for none.
        durable: whether a durable snapshot was written at this step.
    """

    step: int
    loss: float
    grad_norm: float
    tokens: int
    health: str
    step_time_ms: float
    blocked_ms: float
    data_wait_ms: float
    stall_ms: float
    completed_at_ms: int
    first: bool
    snapshot_slot: int
    durable: bool


class StepWatch:
    """Measures one step's parts [ms]; ``lap`` starts the next step where this one ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.start_ms = clock.monotonic_ms()
        self.blocked_ms = 0.0
        self.data_wait_ms = 0.0
        self.stall_ms = 0.0

    def now_ms(self) -> float:
        """Return the monotonic time."""
        return self._clock.monotonic_ms()

    def lap(self) -> float:
        """Return the step's time, and start the next step."""
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - self.start_ms
        self.start_ms = now_ms
        self.blocked_ms = self.data_wait_ms = self.stall_ms = 0.0
        return elapsed_ms
