"""Says which of two was wrong at a step, once the step has been made again.

Two that did the same work and came to different bits are a tie: nothing in the step itself tells
who was right. The run goes back before it and makes it again, from the same state, with the same
batches and random numbers, and a sound machine comes to the same bits as the first time. So what
somebody *claimed* then is held against what comes out now:

* All agree now: whoever claimed that was right, and whoever claimed something else was wrong then.
* They differ once more: who claims the same as before may be right, or wrong each time alike; who
  claims something new, on the same host, does not come to the same twice, and is wrong.

If nobody's claim comes out again, the step is another one now (batches were left out, the learning
rate was lowered, a program does not repeat its bits), and nothing is said. So no wrong conclusion
needs to be guarded against by knowing what has changed: bits that are equal were made alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from everstep.core.placement import Layout
from everstep.monitor.ties import TIES_MAX, Claims, Key, Tie


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A tie that is one no more: ``ranks``, all of ``host``, were wrong at ``step``."""

    step: int
    ranks: tuple[int, ...]
    host: str
    agreed: bool  # all came to the same this time
    reason: str


class Ties:
    """Those of one job that wait for their step to be made again. Mutable."""

    def __init__(self) -> None:
        self._open: dict[int, Tie] = {}

    def __contains__(self, step: int) -> bool:
        return step in self._open

    def keep(self, tie: Tie) -> None:
        """Wait for a step; what it came to the newest time is what counts."""
        self._open[tie.step] = tie
        while len(self._open) > TIES_MAX:
            del self._open[min(self._open)]

    def keys(self, step: int) -> Collection[Key]:
        """Return what is to be told of a step that is made again."""
        return self._open[step].claimed.keys() if step in self._open else ()

    def settle(
        self, step: int, again: Claims, layout: Layout, hosts: Sequence[str]
    ) -> Broken | None:
        """Hold what ranks come to now against what they claimed; a tie is looked at once.

        Args:
            step: that was made again.
            again: what ranks have come to, as far as they have told.
            layout: of the job now.
            hosts: by rank, now.

        Returns:
            Who was wrong; None if nothing tells, or more than one host was.
        """
        tie = self._open.pop(step, None)
        if tie is None or tie.layout != layout or not hosts:
            return None
        wrong: set[int] = set()
        agreed, there_then = True, tie.hosts
        for key, claims in tie.claimed.items():
            now = again.get(key, {})
            one_value = len(now) > 1 and len(set(now.values())) == 1
            if not one_value and not claims.keys() <= now.keys():
                continue
            truth = next(iter(now.values())) if one_value else None
            kept = {
                rank
                for rank, claim in claims.items()
                if claim == (truth if one_value else now[rank])
            }
            if not kept:
                return None
            agreed &= one_value
            wrong |= {
                rank
                for rank in claims.keys() - kept
                if one_value or hosts[rank] == there_then[rank]
            }
        ranks = sorted(wrong & set(tie.suspects))
        there = {there_then[rank] for rank in ranks}
        if len(there) != 1:
            return None
        (host,) = there
        return Broken(
            step=step, ranks=tuple(ranks), host=host, agreed=agreed, reason=_why(tie, ranks, agreed)
        )


def _why(tie: Tie, wrong: Sequence[int], agreed: bool) -> str:
    who = _named(wrong)
    right = _named([rank for rank in tie.suspects if rank not in wrong])
    if agreed:
        return (
            f"step {tie.step} was made again and came out everywhere as {right} had it the first "
            f"time: {who} had been wrong"
        )
    return (
        f"step {tie.step} was made again, and {who} did not come to the same bits as the first "
        f"time, as {right} did"
    )


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
