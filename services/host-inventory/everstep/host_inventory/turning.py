"""Gives the seats of a job that is asked for once more to other hosts than before.

An audit that finds a difference is made again. Where its hosts and the job's have each made the
work once, that tells nothing if it is the same host again: so each seat goes to the next host of
those that could have it, and all seats' hosts differ from before as far as there are others.
Neighbours may then be in different pods, which costs time and no bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from everstep.host_inventory.state import Host

Seats = list[tuple[Host, tuple[int, ...]]]


def turned(seats: Seats, free: Sequence[Host], turn: int, tp: int) -> Seats:
    """Return the seats with their hosts exchanged ``turn`` times; as they are if there is no other.

    Args:
        seats: of a job that has none yet, by their ranks.
        free: all hosts that may have them.
        turn: how often the same work was placed before.
        tp: chips that must be on one host.
    """
    most = max(len(ranks) for _, ranks in seats)
    mine = [host for host, _ in seats]
    taken = {host.host_id for host in mine}
    others = sorted(
        (one for one in free if one.host_id not in taken and one.chips // tp * tp >= most),
        key=lambda one: one.host_id,
    )
    if turn == 0 or any(host.chips // tp * tp < most for host in mine):
        return seats
    pool = [*mine, *others]
    return [(pool[(at + turn) % len(pool)], ranks) for at, (_, ranks) in enumerate(seats)]
