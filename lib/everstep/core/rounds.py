"""Says which steps are shadowed, and how groups are paired in them; all ranks come to the same.

In a shadow step data-parallel groups make each other's gradients (``everstep.train.shadow``). Here,
because the simulator's ranks keep the same rounds.
"""

from __future__ import annotations

from typing import Final

# After a difference so many more steps are shadowed at once: two other pairings tell who it was if
# it happens again, and if not, waiting for the next one that is due costs less.
AGAIN_STEPS: Final = 2
# No snapshots after a difference: memory keeps the last state before it until those steps are made
# and somebody has decided, for which a second is enough.
DOUBTED_STEPS: Final = 16


class Rounds:
    """One generation's.

    Args:
        every: how many steps apart; 0: only when somebody asks.
        replicas: data-parallel groups.
        first_shift: how far the first pairing reaches, less one.
    """

    def __init__(self, *, every: int, replicas: int, first_shift: int) -> None:
        self._every = every
        self._replicas = replicas
        self._shift = first_shift
        self._again = 0
        self._asked = False

    def due(self, step: int) -> bool:
        """Whether the step that begins with ``step`` completed ones is to be shadowed."""
        regular = self._every > 0 and (step + 1) % self._every == 0
        return regular or self._asked or self._again > 0

    def next_shift(self) -> int:
        """Return by how much groups are paired now: group g makes the work of g + this.

        0: its own once more. So it is where there is no other, and where two differ and no third
        one tells which: chips that are wrong seldom make the same mistake twice.
        """
        if self._replicas == 1 or (self._replicas == 2 and self._again):
            return 0
        shift = 1 + self._shift % (self._replicas - 1)
        self._shift += 1
        return shift

    def agreed(self, *, shadowed: bool, differs: bool, asked: bool) -> None:
        """Take what ranks have agreed on for a step.

        Args:
            shadowed: whether it was.
            differs: something came out otherwise.
            asked: somebody wants the next one to be.
        """
        if not shadowed:
            self._asked |= asked
            return
        self._asked = asked
        if self._again:  # not begun anew: a difference that stays would double the run's time
            self._again -= 1
        elif differs:
            self._again = AGAIN_STEPS
