"""Keeps the newest snapshot that was found equal on all who hold it, until somebody has decided.

Memory holds two steps, and what is wrong is known a step after it was kept. Without this, the next
snapshots would be taken over the sound one before anybody was told, and there were nothing left in
memory to go back to. All ranks see the same sum, so all hold still at one step.
"""

from __future__ import annotations

import logging
from typing import Final

from everstep.memory.control import NO_STEP

log = logging.getLogger(__name__)

# Steps without snapshots until one gives up waiting: the monitor takes one or two steps to decide,
# and a monitor that is started anew some seconds. What is made meanwhile is wrong anyway.
HOLD_STEPS_MAX: Final = 1_024


class Gate:
    """One rank's; all ranks' do the same.

    Args:
        hold: whether to wait for a decision; else snapshots go on whatever they show.
    """

    def __init__(self, *, hold: bool) -> None:
        self._hold = hold
        self.verified_step = NO_STEP

    def opens(self, step: int, *, held_step: int, compared: bool, equal: bool | None) -> bool:
        """Say whether the older snapshot may be overwritten.

        Copies that have never been equal in this generation are none: nothing waits for them.

        Args:
            step: the one that has just been agreed on.
            held_step: of the newest snapshot.
            compared: whether it has fingerprints at all.
            equal: what the sum says of it; None: not everybody's is whole.
        """
        if equal is None:
            return not self._hold
        if equal:
            if compared:
                self.verified_step = held_step
            return True
        if self.verified_step == NO_STEP or not self._hold:
            return True
        if step - held_step <= HOLD_STEPS_MAX:
            return False
        log.warning(
            "step %d is not equal on all ranks that hold it, and nobody has acted on it in %d "
            "steps: snapshots go on",
            held_step,
            HOLD_STEPS_MAX,
        )
        self.verified_step = NO_STEP
        return True
