"""One fault after the other, in the same way for every contestant.

A fault strikes in the middle of training, at a random moment within a step, and takes one host: 2
of the 8 ranks, never the first host, whose loss some peers cannot survive.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.support.processes import TimedOutError, wait_for
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO

HOST_RANKS: Final = (2, 3)  # of the second host
STEPS_BEFORE: Final = 4  # committed before a fault: caches are warm, snapshots and replicas exist
TRAINING_S: Final = 180.0  # to get that far, from a cold start
RECOVERY_S: Final = 180.0  # several times what the slowest peer takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One recovery.

    Args:
        fault_at: seconds since the epoch.
        recovery: what the probe saw.
        step_time_s: mean time of a step before the fault.
        extra: what the contestant's own services say of it.
    """

    fault_at: float
    recovery: probe.Recovery
    step_time_s: float | None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        usual = None if self.step_time_s is None else round(self.step_time_s, 3)
        return {**probe.to_json(self.recovery), "step_time_s": usual, **self.extra}


def strike(
    directory: Path,
    rng: random.Random,
    kill: Callable[[], float],
    alive: Callable[[], str | None],
) -> Sample:
    """Let it train, kill a host, and wait until a new step is committed.

    Args:
        directory: of the probe.
        rng: draws the moment.
        kill: strikes; returns when, in seconds since the epoch.
        alive: says why the contestant can no longer recover, None while it can.

    Raises:
        TimedOutError: it does not train, or does not recover.
    """
    world = DEMO.world_size
    since = time.time()
    target = max(probe.committed(probe.read(directory, world), until=since), 0) + STEPS_BEFORE

    def trained() -> bool | None:
        _check(alive)
        return probe.committed(probe.read(directory, world), until=time.time()) >= target or None

    wait_for(trained, TRAINING_S, f"{STEPS_BEFORE} steps")
    usual = probe.step_time_s(probe.read(directory, world), since=since, until=time.time())
    time.sleep(rng.random() * (usual or 1.0))
    fault_at = kill()
    before = probe.committed(probe.read(directory, world), until=fault_at)

    def recovered() -> probe.Recovery | None:
        _check(alive)
        return probe.recovery(probe.read(directory, world), fault_at, before)

    found = wait_for(recovered, RECOVERY_S, "recovery")
    return Sample(fault_at=fault_at, recovery=found, step_time_s=usual)


def newest_pids(directory: Path, ranks: tuple[int, ...]) -> list[int]:
    """Return the process ids that ``ranks`` have now."""
    record = probe.read(directory, DEMO.world_size)
    return [[one.pid for one in record[rank] if one.event == probe.STARTED][-1] for rank in ranks]


def _check(alive: Callable[[], str | None]) -> None:
    why = alive()
    if why is not None:
        raise TimedOutError(why)
