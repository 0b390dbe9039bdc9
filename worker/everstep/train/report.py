"""What a rank tells about each step, and the stop watch that it is told from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from everstep.core.system import Clock
from everstep.train.shadow import Rerun, Work

HEALTH_OK: Final = "ok"
HEALTH_SKIPPED: Final = "skipped_non_finite"
NO_SLOT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What work that was done again has shown, or hints at, in one step of one rank.

    Args:
        rerun: fingerprints of its work and of the work that it re-ran; None: none at this step.
        local_norm: of its own gradient, before ranks add up; 0: not asked.
        recomputed_wrong: modules whose recomputed outputs were not the first ones.
        own: fingerprints of its own work, where an audit may do it again; None: nobody asks.
    """

    rerun: Rerun | None = None
    local_norm: float = 0.0
    recomputed_wrong: tuple[str, ...] = ()
    own: Work | None = None


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
        schedule_version: of the schedule that the ranks agreed on for this step.
        position: of the global batch that the step was made from.
        poisoned: whether this rank's own gradient or loss was not finite.
        own_ms: from agreement to agreement, outside of all waits for other ranks; 0: not measured.
        shadow_ms: of the step's time, re-running another replica's work.
        checked: what work that was done again has shown; None: nothing was checked.
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
    schedule_version: int = 0
    position: int = 0
    poisoned: bool = False
    own_ms: float = 0.0
    shadow_ms: float = 0.0
    checked: Checked | None = None


class StepWatch:
    """Measures one step's parts [ms]; ``lap`` starts the next step where this one ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.start_ms = clock.monotonic_ms()
        self.blocked_ms = 0.0
        self.data_wait_ms = 0.0
        self.stall_ms = 0.0
        self.own_ms = 0.0
        self.shadow_ms = 0.0
        self.checked: Checked | None = None

    def now_ms(self) -> float:
        """Return the monotonic time."""
        return self._clock.monotonic_ms()

    def note_wrong(self, modules: tuple[str, ...]) -> None:
        """Note modules whose recomputed outputs were not the first ones."""
        if modules:
            self.checked = replace(self.checked or Checked(), recomputed_wrong=modules)

    def lap(self) -> dict[str, Any]:
        """Return what was measured of the step, by the names of ``StepReport``; start the next."""
        now_ms = self._clock.monotonic_ms()
        times = {
            "step_time_ms": now_ms - self.start_ms,
            "blocked_ms": self.blocked_ms,
            "data_wait_ms": self.data_wait_ms,
            "stall_ms": self.stall_ms,
            "own_ms": self.own_ms,
            "shadow_ms": self.shadow_ms,
            "checked": self.checked,
        }
        self.start_ms = now_ms
        self.blocked_ms = self.data_wait_ms = self.stall_ms = 0.0
        self.own_ms = self.shadow_ms = 0.0
        self.checked = None
        return times
