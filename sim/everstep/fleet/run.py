"""What the ranks really do: come up, train, stand still; and what that leaves behind.

Nothing here decides. Training time is arithmetic (``cadence``): the state changes only when a
start, a fence, a failure or a change of pace comes, and every change is laid into the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from everstep.core.placement import HostPlacement, Placement
from everstep.fleet.cadence import Cadence
from everstep.fleet.copies import Copies
from everstep.fleet.ledger import Ledger
from everstep.monitor.ledger import Cause


class State(StrEnum):
    """What the newest started generation's ranks do."""

    IDLE = "idle"
    COMING_UP = "coming_up"
    TRAINING = "training"


class Run:
    """The job's ranks on their hosts. All times are milliseconds since the job was submitted."""

    def __init__(self, cadence: Cadence, copies: Copies, ledger: Ledger) -> None:
        self.state = State.IDLE
        self.generation = 0
        self.first = 0  # the step that the generation went on from
        self.seats: Mapping[str, HostPlacement] = {}
        self.cause = Cause.STARTUP  # of time that is not training
        self.last_step = 0
        self._cadence = cadence
        self._copies = copies
        self._ledger = ledger
        self._trained_ms = 0
        self._paced_ms = 0
        self._slow = 1.0

    @property
    def cadence(self) -> Cadence:
        """Return when the newest started generation's steps and saves happen."""
        return self._cadence

    def paced_by(self, cadence: Cadence) -> None:
        """From the next start on, steps and saves happen so."""
        assert self.state is State.IDLE, f"a stretch has one cadence, the ranks are {self.state}"
        self._cadence = self._copies.cadence = self._ledger.cadence = cadence

    def comes_up(self, at_ms: int, generation: int, placement: Placement, step: int) -> None:
        """Every host has taken its start command."""
        assert self.state is State.IDLE, (
            f"generation {generation} starts while generation {self.generation} is {self.state}"
        )
        assert generation > self.generation, f"generation {generation} starts again"
        before = self.seats
        self.state, self.generation = State.COMING_UP, generation
        self.first = max(step, 0)
        self.seats = placement.seats
        self._copies.placed(generation, placement)
        assert len(self.seats) == len(placement.hosts), "a host has two seats"
        self._copies.seated(self.seats.keys() - before.keys(), generation)
        self.switch(at_ms, self.cause)

    def trains(self, at_ms: int, slow: float) -> None:
        """All ranks have their state: the first step begins."""
        assert self.state is State.COMING_UP, f"nothing comes up, the ranks are {self.state}"
        self.switch(at_ms, self.cause)
        self._copies.resumed(self.first)
        self._ledger.resumed(self.first)
        self.state = State.TRAINING
        self._trained_ms, self._paced_ms, self._slow = 0, at_ms, slow

    def trained_ms(self, at_ms: int) -> int:
        """Return the training time since the generation went on."""
        return self._trained_ms + int((at_ms - self._paced_ms) / self._slow)

    def step(self, at_ms: int) -> int:
        """Return the last completed step."""
        if self.state is not State.TRAINING:
            return self.last_step
        return self._cadence.reached(self.first, self.trained_ms(at_ms))

    def paced(self, at_ms: int, slow: float) -> None:
        """From now on a step takes ``slow`` times as long."""
        if self.state is State.TRAINING:
            self._trained_ms, self._paced_ms = self.trained_ms(at_ms), at_ms
        self._slow = slow

    def stands_still(self, at_ms: int, cause: Cause) -> None:
        """The ranks make no steps any more; ``cause`` is what the time goes to from here."""
        if self.state is State.TRAINING:
            trained_ms = self.trained_ms(at_ms)
            self.last_step = self._ledger.trained(at_ms, first=self.first, trained_ms=trained_ms)
            self._copies.ended(
                generation=self.generation,
                first=self.first,
                trained_ms=trained_ms,
                at_ms=at_ms,
            )
            self.cause = cause
        elif self.state is State.COMING_UP:
            self.switch(at_ms, cause)
        self.state = State.IDLE

    def switch(self, at_ms: int, cause: Cause) -> None:
        """Lay the time up to now, unless it is training, and go on under ``cause``."""
        if self.state is not State.TRAINING:
            self._ledger.until(at_ms, self.cause)
            self.cause = cause
