"""Ranks as agents see them, made from recorded stacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.unit.monitor.recorded_stacks import IN_ALL_REDUCE, IN_LOADER, SPINNING

from everstep.core.record import changed
from everstep.core.spec import LayoutSpec
from everstep.monitor.detectors.hang import HangLimits, Pace
from everstep.monitor.detectors.hang_stacks import Phase, RankLook, State
from everstep.monitor.detectors.hang_verdict import HangVerdict, Look, Unsure, judge_hang

LAYOUT = LayoutSpec(dp_shard=8)
LIMITS = HangLimits()
PACE = Pace(stepped_ms=0, gaps_ms=(200,), progressed=True)
TIMEOUT_MS = 120_000


def waiting(rank: int, **fields: Any) -> RankLook:
    """A rank that waits for the others, two ranks a host."""
    seen = RankLook(
        rank=rank,
        host_id=f"h{rank // 2}",
        step=7,
        state=State.SLEEPING,
        phase=Phase.COMPUTING,
        answered=True,
        look_ms=310,
        frames=IN_ALL_REDUCE,
    )
    return changed(seen, **fields)


def stopped(rank: int) -> RankLook:
    """A rank under SIGSTOP."""
    return waiting(rank, state=State.STOPPED, answered=False, silence="it is stopped", frames=())


def spinning(rank: int, **fields: Any) -> RankLook:
    """A rank that computes for ever in its own code."""
    return waiting(rank, state=State.RUNNING, cpu_ms=300, **{"frames": SPINNING, **fields})


def loading(rank: int, **fields: Any) -> RankLook:
    """A rank that sleeps in its dataset."""
    return waiting(rank, phase=Phase.LOADING, **{"frames": IN_LOADER, **fields})


def all_but(*others: RankLook, world: int = 8) -> tuple[RankLook, ...]:
    """Ranks that wait, but for these."""
    by_rank = {one.rank: one for one in others}
    return tuple(by_rank.get(rank) or waiting(rank) for rank in range(world))


def judged(
    looks: Iterable[tuple[RankLook, ...]],
    silent_ms: int = 12_000,
    *,
    layout: LayoutSpec = LAYOUT,
    pace: Pace = PACE,
) -> HangVerdict | Unsure:
    """Judge looks that were taken two seconds apart, the last one just now."""
    shown = list(looks)
    times = [silent_ms - 2_000 * (len(shown) - 1 - n) for n in range(len(shown))]
    return judge_hang(
        silent_ms,
        [Look.of(at_ms, ranks, layout) for at_ms, ranks in zip(times, shown, strict=True)],
        replace(pace, stepped_ms=0),
        layout,
        LIMITS,
        collective_timeout_ms=TIMEOUT_MS,
    )
