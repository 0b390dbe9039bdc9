"""When a rank snapshots: every so many steps, on request, and at the end.

Every decision is made from the step number and the step's agreement, so all ranks make it alike
and a step that one rank holds is a step that every rank holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from everstep.core.spec import CheckpointSpec
from everstep.core.system import Clock
from everstep.data.loader import DataState
from everstep.train.control import Agreement, StepCollective, Vote
from everstep.train.report import NO_SLOT
from everstep.train.snapshots import Snapshots

# After the last step: until the peer has the last snapshot and the last upload is done. An agent
# that was killed is back in seconds; an upload that takes longer than this is lost anyway.
FINISH_WAIT_MS: Final = 120_000.0
_FINISH_POLL_S: Final = 0.02


class Saver:
    """Applies the checkpoint section of the job spec to a rank's slots.

    Args:
        spec: how often.
        snapshots: the rank's slots.
        collective: to agree at the end, when no step does.
        clock: for the deadline at the end.
    """

    def __init__(
        self, spec: CheckpointSpec, snapshots: Snapshots, collective: StepCollective, clock: Clock
    ) -> None:
        self._spec = spec
        self._snapshots = snapshots
        self._collective = collective
        self._clock = clock
        self._durable_due = False

    @property
    def vote(self) -> tuple[bool, bool]:
        """What this rank says in the step's collective: (replicated, durable busy)."""
        return self._snapshots.replicated, self._snapshots.durable_busy

    def after_step(
        self, step: int, data_state: DataState, agreement: Agreement
    ) -> tuple[int, bool]:
        """Begin the snapshots that are due and allowed; returns (memory slot or -1, durable taken).

        A durable snapshot that is due while an upload is under way waits for the next step.
        ``go_on`` finishes them.
        """
        every = self._spec.object_every_steps
        self._durable_due |= agreement.save or bool(every and step % every == 0)
        slot, durable = NO_SLOT, False
        if step % self._spec.memory_every_steps == 0 and agreement.replicated:
            slot = self._snapshots.take(step=step, data_state=data_state.to_json())
        if self._durable_due and agreement.durable_free:
            self._snapshots.take_durable(step=step, data_state=data_state.to_json())
            self._durable_due, durable = False, True
        return slot, durable

    def go_on(self, then: Callable[[], None]) -> None:
        """Finish beside training what was begun, then do ``then``."""
        self._snapshots.go_on(then)

    def settle(self) -> None:
        """Wait for what ``go_on`` does: before an optimizer steps."""
        self._snapshots.settle()

    def wait_whole(self) -> None:
        """Wait until all that was begun is valid."""
        self._snapshots.wait_whole()

    def at_end(self, step: int, data_state: DataState) -> tuple[int, bool]:
        """Take the last snapshots; waits until they are allowed, up to ``FINISH_WAIT_MS``."""
        self._snapshots.wait_whole()
        deadline_ms = self._clock.monotonic_ms() + FINISH_WAIT_MS
        while True:
            replicated, busy = self.vote
            expired = self._clock.monotonic_ms() > deadline_ms
            # A save request is what this last round has no other use for: here it means "too late".
            agreement = self._collective.agree(
                Vote(
                    replicated=replicated,
                    durable_busy=busy,
                    save=expired,
                    step=step,
                    finishing=True,
                )
            )
            if (agreement.replicated and agreement.durable_free) or agreement.save:
                break
            time.sleep(_FINISH_POLL_S)
        slot, durable = NO_SLOT, False
        if agreement.replicated:
            slot = self._snapshots.take(step=step, data_state=data_state.to_json())
        if agreement.durable_free:
            self._snapshots.take_durable(step=step, data_state=data_state.to_json())
            durable = True
        self._snapshots.go_on(lambda: None)
        self._snapshots.wait_whole()
        # Nobody leaves, and takes its connections along, before everybody has written.
        self._collective.agree(Vote(step=step, finishing=True))
        return slot, durable
