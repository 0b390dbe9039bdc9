"""Decides what a hang means that comes again at the same step, in the same ranks.

Once may be anything. A second time, a new process has not helped, so the ranks had better be
elsewhere. When the same ranks hang in the same way at the same step on a second set of hosts, it is
what they run: code, or a batch. Going on would hang there for ever, so the job is stopped and a
person is told, as with an error of user code that comes twice.

A rank that is stopped from outside (a signal, a debugger) says nothing about its code, and a hang
in which nobody stands out names nobody: both are left to the restart budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from everstep.core.record import Record
from everstep.monitor.events import Action

OF_THE_CODE: Final = frozenset({"rank_spinning", "loader_blocked", "hang"})
HANGS_MAX: Final = 16  # only repeats matter, and they come one after the other


class Hang(Record, frozen=True, kw_only=True):
    """Ranks that hung, and where they were."""

    kind: str
    step: int
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]


def action_for(hang: Hang, action: Action, earlier: Sequence[Hang]) -> tuple[Action, str]:
    """Return what to do about ``hang``, and why it differs from ``action``; "" if it does not.

    Args:
        hang: just found.
        action: what would be done about it alone.
        earlier: hangs of the same job, in any order.
    """
    if hang.kind not in OF_THE_CODE or not hang.ranks:
        return action, ""
    same = [
        one
        for one in earlier
        if (one.kind, one.step, one.ranks) == (hang.kind, hang.step, hang.ranks)
    ]
    if not same:
        return action, ""
    places = sorted({one.hosts for one in same})
    if all(set(hosts) & set(hang.hosts) for hosts in places):
        return Action.REPLACE_IF_SPARE, (
            f"the same ranks hung after step {hang.step} before, and a new process has not helped: "
            "they had better be elsewhere"
        )
    before = "; ".join(", ".join(hosts) for hosts in places)
    return Action.FAIL, (
        f"the same ranks hung after step {hang.step} on other hosts before ({before}): it is in "
        "what they run, code or data, and would come again"
    )
