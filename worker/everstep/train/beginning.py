"""Knows where the user's loop begins, and has a resume's random states put back just there.

What is built between ``run.track()`` and the loop, such as a data set of random items, must be what
the undisturbed run built, so a resume goes on drawing as a fresh process until the loop begins, and
only then as the snapshot says. ``run.batches()`` begins a loop beyond doubt. A loop of the user's
own asks ``run.ended`` or ``run.step_index`` first, or nothing at all, and any of them may also be
read for a log. So the first step notes how its loop began, every snapshot holds the note, and a
resume of the same code takes the same sign.

Rejected: to put the states back at the end of ``run.track()`` (what is built after it would differ
in every resumed run; only a loop that shows no sign gets them there), and in ``run.step()`` (the
first forward pass is over by then).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from everstep.train.restoring import Restorer
from everstep.train.state import TrackedState

_NOTE: Final = "begun_by"


class Sign(StrEnum):
    """What a loop did first of all; the surest first, as several may come before a step."""

    BATCHES = "batches"
    ENDED = "ended"
    STEP_INDEX = "step_index"
    NOTHING = "nothing"


class Beginning:
    """The beginning of one process's loop."""

    def __init__(self) -> None:
        self.is_over = False  # the loop has begun beyond doubt: in ``run.batches`` or with a step
        self._seen: set[Sign] = set()
        self._sign = Sign.NOTHING
        self._awaited = Sign.ENDED
        self._is_put_back = False
        self._state: TrackedState | None = None
        self._restorer: Restorer | None = None

    def tracked(self, state: TrackedState, restorer: Restorer | None) -> None:
        """Look for signs from now on: ``run.track`` is done.

        Args:
            state: as it was restored; a snapshot of an older version has no note.
            restorer: that has restored it, and is let go when the loop has begun; None: no resume.
        """
        self._state, self._restorer = state, restorer
        self._awaited = Sign(state.notes.get(_NOTE, Sign.ENDED))
        if self._awaited is Sign.NOTHING:
            self.put_back()

    def saw(self, sign: Sign) -> None:
        """Note a sign, and put the states back if it is the one and comes for the first time."""
        if self.is_over or self._state is None:
            return
        self._seen.add(sign)
        if sign is Sign.BATCHES or (sign is self._awaited and not self._is_put_back):
            self.put_back()

    def put_back(self) -> None:
        """Put the random states back, if no step has been made since a resume."""
        if self._restorer is not None and self._state is not None:
            self._restorer.restore_randomness(self._state)
            self._is_put_back = True

    def end(self) -> None:
        """Note how the loop began: a step is being made."""
        self.is_over = True
        if self._restorer is not None:
            self._restorer.close()
            self._restorer = None
        self._sign = next((sign for sign in Sign if sign in self._seen), Sign.NOTHING)

    def noted(self) -> dict[str, str]:
        """Return what snapshots are to hold."""
        return {_NOTE: self._sign.value}
