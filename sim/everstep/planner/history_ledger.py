"""Where a recorded run's time went: as the monitor has it, or as its failures add up."""

from __future__ import annotations

from collections.abc import Mapping

from everstep.monitor.ledger import Cause
from everstep.planner.history import CAUSES, STRAGGLER, History


def observed(measured: Mapping[str, int], *, slow_ms: int, begun_again_ms: int) -> dict[str, int]:
    """Return the monitor's ledger as it is compared with here.

    Args:
        measured: cause -> ms, as the monitor tells it.
        slow_ms: what slow spells have added to steps, which it lays under useful, but for steps
            that are slow because replicas were missing.
        begun_again_ms: how long the job was over until a person began it again, which it lays
            under restart.
    """
    causes = {**dict.fromkeys(CAUSES, 0), **measured}
    if not causes[STRAGGLER]:
        moved_ms = min(max(slow_ms - causes[Cause.DEGRADED], 0), causes[Cause.USEFUL])
        causes[STRAGGLER] += moved_ms
        causes[Cause.USEFUL] -= moved_ms
    moved_ms = min(begun_again_ms, causes[Cause.RESTART])
    causes[Cause.PAUSED] += moved_ms
    causes[Cause.RESTART] -= moved_ms
    return causes


def added_up(history: History) -> dict[str, int]:
    """Return what the failures of a run add up to, where nobody has measured it."""
    failures = history.failures
    ends_ms = [*(failure.at_ms for failure in failures[1:]), history.wall_ms]
    causes = dict.fromkeys(CAUSES, 0)
    causes[Cause.STARTUP] = history.startup_ms
    causes[Cause.CHECKPOINT_STALL] = history.finish_ms
    causes[Cause.WAITING_FOR_HOSTS] = history.launch_waiting_ms
    for failure, end_ms in zip(failures, ends_ms, strict=False):  # without any there is one end
        left_ms = max(end_ms - failure.at_ms, 0)  # a restart may have been broken off
        for cause, ms in (
            (Cause.DETECTION, failure.detection_ms),
            (Cause.PAUSED, failure.paused_ms),
            (Cause.WAITING_FOR_HOSTS, failure.waiting_ms),
            (Cause.RESTART, failure.restart_ms),
        ):
            causes[cause] += min(ms, left_ms)
            left_ms -= min(ms, left_ms)
        causes[Cause.LOST_WORK] += failure.lost_work_ms
    trained_ms = history.wall_ms - sum(causes.values())
    stalls_ms = trained_ms // (history.interval_ms + history.stall_ms) * history.stall_ms
    causes[Cause.CHECKPOINT_STALL] += stalls_ms
    causes[Cause.USEFUL] = trained_ms - stalls_ms
    return causes
