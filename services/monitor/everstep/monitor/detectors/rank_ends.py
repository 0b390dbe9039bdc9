"""What the ends of ranks say by themselves, once they are known to be the root.

Each function takes the ends of one class, the earliest first where it matters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from everstep.core.time import HOUR_MS
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action, ExitClass, RankEnded

ROOTS: Final = frozenset(
    {
        ExitClass.KILLED,
        ExitClass.USER_ERROR,
        ExitClass.BAD_ENTRY_POINT,
        ExitClass.RESTORE_FAILED,
        ExitClass.HOST_TOO_SMALL,
    }
)
RANKS_NAMED_MAX: Final = 8  # in a sentence; the events have all of them


def signature(error: str) -> str:
    """Return an error line without what differs from process to process: addresses."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x?", error)


def bad_entry_point(ends: list[RankEnded]) -> Verdict:
    """No other host could load it either."""
    first = min(ends, key=lambda end: (end.at_ms, end.rank))
    return Verdict(
        kind="bad_entry_point",
        action=Action.FAIL,
        ranks=tuple(sorted(end.rank for end in ends)),
        hosts=(),
        reason=f"the entry point cannot be loaded: {first.error}",
        detail=first.detail or first.error,
        failed_at_ms=first.at_ms,
    )


def host_too_small(ends: list[RankEnded]) -> Verdict:
    """At launch the job is too large for the fleet's hosts; later a host is too small for it."""
    first = min(ends, key=lambda end: (end.at_ms, end.rank))
    hosts = tuple(sorted({end.host_id for end in ends}))
    return Verdict(
        kind="host_too_small",
        action=Action.REPLACE if first.step else Action.FAIL,
        ranks=tuple(sorted(end.rank for end in ends)),
        hosts=hosts if first.step else (),
        reason=f"host {first.host_id} does not hold what it would have to keep: {first.error}",
        detail=first.detail or first.error,
        failed_at_ms=first.at_ms,
    )


def killed(
    ends: list[RankEnded], deaths: Sequence[tuple[str, int]], deaths_per_hour_max: int
) -> Verdict:
    """A signal that nobody of ours sent; a host on which it happens often is not sound."""
    first = ends[0]
    hosts = tuple(sorted({end.host_id for end in ends}))
    recent = Counter(host for host, at in deaths if at > first.at_ms - HOUR_MS)
    unsound = tuple(h for h in hosts if recent[h] >= deaths_per_hour_max)
    often = "".join(f"; {h} had {recent[h]} within the hour" for h in unsound)
    return Verdict(
        kind="rank_killed",
        action=Action.REPLACE_IF_SPARE if unsound else Action.RESTART,
        ranks=tuple(end.rank for end in ends),
        hosts=unsound or hosts,
        reason=f"rank {first.rank} on {first.host_id} ended by signal {first.signal}{often}",
        detail=first.detail,
        failed_at_ms=first.at_ms,
    )


def restore_failed(ends: list[RankEnded]) -> Verdict:
    """No source of the plan could be used; the next plan names others."""
    return Verdict(
        kind="restore_failed",
        action=Action.RESTART,
        ranks=tuple(end.rank for end in ends),
        hosts=tuple(sorted({end.host_id for end in ends})),
        reason=f"rank {ends[0].rank} could not load its state: {ends[0].error}",
        detail=ends[0].detail,
        failed_at_ms=ends[0].at_ms,
    )


def user_error(ends: list[RankEnded], before: Collection[tuple[int, str]]) -> Verdict:
    """User code raised; ``before`` are step and signature of earlier times."""
    first = ends[0]
    repeated = (first.step, signature(first.error)) in before
    again = " for the second time: stopping, since another try would end the same way"
    return Verdict(
        kind="user_error",
        action=Action.FAIL if repeated else Action.RESTART,
        ranks=tuple(end.rank for end in ends),
        hosts=(),
        reason=f"user code raised on rank {first.rank} after step {first.step}: {first.error}"
        f"{again if repeated else ''}",
        detail=first.detail,
        failed_at_ms=first.at_ms,
    )


def uneven(finished: Sequence[RankEnded]) -> str:
    """Say which of these ranks returned at which step, if not all at the same; "" if they did."""
    ranks: dict[int, list[int]] = {}
    for end in sorted(finished, key=lambda end: (end.step, end.rank)):
        ranks.setdefault(end.step, []).append(end.rank)
    if len(ranks) == 1:
        return ""
    parts = (f"{_named(ranks_at)} at step {step}" for step, ranks_at in ranks.items())
    return f"ranks returned at different steps: {', '.join(parts)}"


def _named(ranks: Sequence[int]) -> str:
    some = ", ".join(str(rank) for rank in ranks[:RANKS_NAMED_MAX])
    more = len(ranks) - RANKS_NAMED_MAX
    return f"rank {some} and {more} more" if more > 0 else f"rank {some}"
