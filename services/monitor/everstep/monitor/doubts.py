"""Says what suspicion is left of hosts that were once among those of which one was wrong.

Where what must be equal is not, and neither a majority nor a second computation tells who is wrong,
each of the hosts gets its share of the doubt: a half of two, a quarter of four. Nothing but time
takes it away. A clean re-run does not: faulty chips are wrong now and then, not each time. So the
share halves every ``suspicion_half_life_ms``, and a second doubt adds to what is left of the first.

Doubts go with the host: those of one job count in the next one, and in others that run beside it.

Whose sum comes to ``NAMED_SHARE`` is named, if nobody else's does: two pairs with a host in common,
the second within a half-life of the first. The same pair again tells nothing new, however often.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from everstep.core.record import Record
from everstep.monitor.events import Action

# One doubt between two comes to 1/2, a second within a half-life to 3/4 and more; three doubts
# among three hosts would do, too. Below it, one case among four has been met twice at most.
NAMED_SHARE: Final = 0.75
DOUBTS_MAX: Final = 64  # each is a restart, and the oldest have faded


class Doubt(Record, frozen=True, kw_only=True):
    """One of these hosts was wrong at this time."""

    hosts: tuple[str, ...]
    at_ms: int


def doubts_after(
    doubts: tuple[Doubt, ...], action: Action, newest: Doubt, *, counts: bool = True
) -> tuple[Doubt, ...]:
    """Return the doubts after an incident of silent corruption.

    Args:
        doubts: before it, the oldest first.
        action: what was to be done about it.
        newest: its hosts, and when.
        counts: a doubt of this incident's is one of those that are asked for.
    """
    if action is Action.RESTART:
        return (*doubts, newest)[-DOUBTS_MAX:] if counts else doubts
    if action not in {Action.REPLACE, Action.DRAIN}:
        return doubts
    known = set(newest.hosts)  # were wrong: nobody else is in doubt for what they did
    return tuple(one for one in doubts if not known & set(one.hosts))


def suspicion(doubts: Iterable[Doubt], now_ms: int, half_life_ms: int) -> dict[str, float]:
    """Return what is left of all doubts, by host."""
    found: dict[str, float] = {}
    for doubt in doubts:
        left = 0.5 ** (max(0, now_ms - doubt.at_ms) / half_life_ms) / max(1, len(doubt.hosts))
        for host in sorted(doubt.hosts):
            found[host] = found.get(host, 0.0) + left
    return found


def named(doubts: Iterable[Doubt], newest: Doubt, half_life_ms: int) -> str:
    """Return the one host of the newest doubt that all doubts together name; "" for none."""
    left = suspicion([*doubts, newest], newest.at_ms, half_life_ms)
    enough = [host for host in sorted(newest.hosts) if left[host] >= NAMED_SHARE]
    return enough[0] if len(enough) == 1 else ""
