"""When a rank snapshots: every so many steps, on request, and at the end.

Every decision is made from the step number and the step's agreement, so all ranks make it alike
and a step that one rank holds is a step that every rank holds. How many steps apart is agreed too:
it may change while the run goes on, and then changes for all ranks at one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from everstep.core.rounds import DOUBTED_STEPS
from everstep.core.system import Clock
from everstep.data.loader import DataState
from everstep.memory.control import NO_STEP
from everstep.memory.gate import Gate
from everstep.train.control import Agreement, StepCollective, Vote
from everstep.train.report import NO_SLOT
from everstep.train.snapshots import Snapshots

# After the last step: until the peer has the last snapshot and the last upload is done. An agent
# that was killed is back in seconds; an upload that takes longer than this is lost anyway.
FINISH_WAIT_MS: Final = 120_000.0
_FINISH_POLL_S: Final = 0.02


class Saver:
    """Applies the agreed schedule to a rank's slots.

    Args:
        snapshots: the rank's slots.
        collective: to agree at the end, when no step does.
        clock: for the deadline at the end.
        hold: keep the newest sound snapshot while ranks that share state do not agree on it, and
            for some steps after work that was re-run has come out otherwise.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        collective: StepCollective,
        clock: Clock,
        *,
        hold: bool = False,
    ) -> None:
        self._gate = Gate(hold=hold)
        self._hold = hold
        self._doubted_until = NO_STEP
        self._held_at_end = False
        self._snapshots = snapshots
        self._collective = collective
        self._clock = clock
        self._durable_due = False

    @property
    def vote(self) -> tuple[bool, bool]:
        """What this rank says in the step's collective: (replicated, durable busy)."""
        return self._snapshots.replicated, self._snapshots.durable_busy

    @property
    def discord(self) -> float | None:
        """What this rank says of its newest snapshot in the step's collective."""
        return self._snapshots.fingerprints.word

    def told(self) -> dict[str, Any]:
        """Return what the monitor is told of what is shared; once all that was begun is whole."""
        verified_step = max(self._gate.verified_step, 0)
        return {**self._snapshots.fingerprints.told(), "verified_step": verified_step}

    def _may_overwrite(self, step: int, agreement: Agreement) -> bool:
        prints = self._snapshots.fingerprints
        return self._gate.opens(
            step,
            held_step=prints.begun_step,
            compared=prints.compared,
            equal=agreement.equal,
        )

    def after_step(
        self, step: int, data_state: DataState, agreement: Agreement
    ) -> tuple[int, bool]:
        """Begin the snapshots that are due and allowed; returns (memory slot or -1, durable taken).

        A durable snapshot that is due while an upload is under way waits for the next step.
        ``go_on`` finishes them.
        """
        memory_every = agreement.schedule.memory_every_steps
        every = agreement.schedule.object_every_steps
        self._durable_due |= agreement.save or bool(every and step % every == 0)
        slot, durable = NO_SLOT, False
        if agreement.rerun_differs and self._hold:
            self._doubted_until = step + DOUBTED_STEPS
        if not self._may_overwrite(step, agreement) or step <= self._doubted_until:
            return slot, durable
        if step % memory_every == 0 and agreement.replicated:
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
                    discord=self.discord,
                )
            )
            free = self._may_overwrite(step, agreement)
            if (agreement.replicated and agreement.durable_free and free) or agreement.save:
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
        agreement = self._collective.agree(Vote(step=step, finishing=True, discord=self.discord))
        self._held_at_end = not self._may_overwrite(step, agreement)
        return slot, durable

    def linger(self) -> None:
        """Stay for a while if the last step is not equal everywhere: its judge ends this rank.

        Else the run would be over, and its end state wrong, before anybody has looked.
        """
        if self._held_at_end:
            time.sleep(FINISH_WAIT_MS / 1e3)
