"""Replays a run's failures under another policy: what its time would have gone to.

The hardware keeps its clock: a host breaks, and is back, when it did, whatever the policy makes of
it; so does a process, and so does a slow host. Which host serves follows from the policy. A failure
that falls into a restart begins it anew; one that falls on a host that is out, or only stands by,
stops nothing; while the job waits or rests there is no process to die. Rejected: replaying the
record's restarts one by one with other numbers, which cannot say what a spare is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.monitor.ledger import Cause
from everstep.planner.history import CAUSES, STRAGGLER, History
from everstep.planner.replay_policy import AS_IT_WAS, Policy
from everstep.planner.replay_run import DEEP_INTERVALS, Run
from everstep.planner.replay_tape import STEPPING

# Fewer failures that went far back may each have lost both copies; so many that agree show how long
# a save takes to settle.
ALIKE_MIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Where the time went. ``causes`` sum to the wall time exactly.

    ``block_walls_ms`` and ``block_useful_ms`` are of the stretches that the record's failures cut
    the wall time into: the same ones under every policy.
    """

    causes: Mapping[str, int]
    goodput: float
    stops: int
    block_walls_ms: tuple[int, ...]
    block_useful_ms: tuple[float, ...]

    @property
    def useful_ms(self) -> int:
        """Return the time of useful steps."""
        return self.causes[Cause.USEFUL]


def replay(history: History, policy: Policy = AS_IT_WAS) -> Replayed:
    """Return where a run's time would have gone under a policy.

    Raises:
        InvalidInput: when the policy makes no sense.
    """
    if policy.interval_ms is not None and policy.interval_ms <= 0:
        raise InvalidInput("an interval of 0 between saves leaves no time for work")
    if policy.straggler_share is not None and not history.unplanned and policy.restart_ms is None:
        raise InvalidInput(
            f"the record of {history.job_id} has no restart from which to know what one takes: "
            "give --restart"
        )
    settled_ms = {host: settle_ms(history, host=host) for host in (False, True)}
    run = Run(history, policy, settled_ms)
    run.play()
    share = _useful_share(history.measured)
    causes = dict(run.tape.causes)
    for cause, part in share.items():
        causes[cause] = run.tape.causes[STEPPING] * part
    whole = _whole(causes, history.wall_ms)
    return Replayed(
        causes=whole,
        goodput=whole[Cause.USEFUL] / history.wall_ms,
        stops=run.stops,
        block_walls_ms=tuple(run.tape.block_walls_ms),
        block_useful_ms=tuple(kept * share[STEPPING] for kept in run.tape.kept_ms),
    )


def settle_ms(history: History, *, host: bool) -> int:
    """Return how old a save had to be before a restart could use it, as the record shows.

    A failure that lost L went back to a save that was L old, so it had settled; the next one, an
    interval younger, had not. Each failure allows an interval of ages; the youngest age that most
    of them allow is taken.

    Args:
        history: of the run.
        host: whether hosts were lost, and with them one copy of their ranks' saves.
    """
    lost = [
        (failure.lost_work_ms, history.cycle_ms(failure.at_ms))
        for failure in history.unplanned
        if bool(failure.lost) is host and failure.lost_work_ms > 0 and not failure.rollback
    ]
    ages = {0} | {max(ms - cycle_ms + 1, 0) for ms, cycle_ms in lost}
    if len(lost) < ALIKE_MIN:
        deepest_ms = DEEP_INTERVALS * max((cycle_ms for _, cycle_ms in lost), default=0)
        ages = {age for age in ages if age <= deepest_ms}
    return max(
        sorted(ages), key=lambda age: (sum(ms - cycle < age <= ms for ms, cycle in lost), -age)
    )


def _useful_share(measured: Mapping[str, int]) -> dict[str, float]:
    """Return how stepping time divides into useful steps and what the replay does not model."""
    modelled = {*CAUSES, STRAGGLER} - {Cause.USEFUL, Cause.DATA_WAIT, Cause.VERIFICATION}
    stepping = {cause: ms for cause, ms in measured.items() if cause not in modelled}
    total = sum(stepping.values())
    if not stepping.get(Cause.USEFUL):
        return {Cause.USEFUL.value: 1.0}
    return {str(cause): ms / total for cause, ms in stepping.items()}


def _whole(causes: Mapping[str, float], total_ms: int) -> dict[str, int]:
    """Round to milliseconds so that the sum stays what it is: the largest remainders go up."""
    floors = {cause: math.floor(max(ms, 0.0)) for cause, ms in causes.items()}
    short = total_ms - sum(floors.values())
    by_remainder = sorted(causes, key=lambda cause: (floors[cause] - causes[cause], cause))
    for cause in by_remainder[:short]:
        floors[cause] += 1
    assert sum(floors.values()) == total_ms, f"{causes} do not sum to {total_ms} ms"
    return floors
