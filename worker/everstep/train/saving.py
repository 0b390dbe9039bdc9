"""When a rank snapshots: every so many steps, on request, and at the end.

Every decision is made from the step number and the step's agreement, so all ranks make it alike
and a step that one rank holds is a step that every rank holds. How many steps apart is agreed too:
it may change while the run goes on, and then changes for all ranks at one step.
"""

from __future__ import annotations

import logging
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

log = logging.getLogger(__name__)

# After the last step: until the peer has the newest snapshot. An agent that was killed is back in
# seconds.
COPY_WAIT_MS: Final = 120_000.0
# And until an earlier checkpoint is stored, whose slot the last one needs: the agent ends each
# upload, stored or not, and ranks whose agent is gone for good are ended by the monitor. Less than
# the half hour after which it takes a run for hopeless in which nobody moves.
UPLOAD_WAIT_MS: Final = 1_500_000.0
LINGER_S: Final = 120.0  # for the judge of a last step that is not equal everywhere
# Between two looks at the end: a twentieth of what was waited. A rank is then nearly always seen to
# pause here, where the monitor knows that it may take its time, and not in the looks' collective.
POLL_S_MIN: Final = 0.02
POLL_S_MAX: Final = 1.0


class Saver:
    """Applies the agreed schedule to a rank's slots.

    Args:
        snapshots: the rank's slots.
        collective: to agree at the end, when no step does.
        clock: for the deadline at the end.
        hold: keep the newest sound snapshot while ranks that share state do not agree on it, and
            for some steps after work that was re-run has come out otherwise.
        sleep: between looks at the end [s].
    """

    def __init__(
        self,
        snapshots: Snapshots,
        collective: StepCollective,
        clock: Clock,
        *,
        hold: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gate = Gate(hold=hold)
        self._hold = hold
        self._doubted_until = NO_STEP
        self._held_at_end = False
        self._snapshots = snapshots
        self._collective = collective
        self._clock = clock
        self._sleep = sleep
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
        self._doubt(step, agreement)
        if not self._may_overwrite(step, agreement) or step <= self._doubted_until:
            return slot, durable
        if step % memory_every == 0 and agreement.replicated:
            slot = self._snapshots.take(step=step, data_state=data_state.to_json())
        if self._durable_due and agreement.durable_free:
            self._snapshots.take_durable(step=step, data_state=data_state.to_json())
            self._durable_due, durable = False, True
        return slot, durable

    def _doubt(self, step: int, agreement: Agreement) -> None:
        if agreement.rerun_differs and self._hold:
            self._doubted_until = step + DOUBTED_STEPS

    def go_on(self, then: Callable[[], None]) -> None:
        """Finish beside training what was begun, then do ``then``."""
        self._snapshots.go_on(then)

    def settle(self) -> None:
        """Wait for what ``go_on`` does: before an optimizer steps."""
        self._snapshots.settle()

    def wait_whole(self) -> None:
        """Wait until all that was begun is valid."""
        self._snapshots.wait_whole()

    def at_end(
        self, step: int, data_state: DataState, last: Agreement | None = None
    ) -> tuple[int, bool]:
        """Take each of the last snapshots as soon as it is allowed; returns as ``after_step``.

        The one in memory does not wait for uploads: who is stopped meanwhile goes on from it. When
        ``COPY_WAIT_MS`` are over, the durable one does not wait for it either, and after
        ``UPLOAD_WAIT_MS`` nobody waits for the durable one. ``last`` is what the last step was
        agreed on with.
        """
        if last is not None:
            self._doubt(step, last)
        self._snapshots.wait_whole()
        begun_ms = self._clock.monotonic_ms()
        slot, durable, allowed = NO_SLOT, False, False
        while not durable:
            waited_ms = self._clock.monotonic_ms() - begun_ms
            replicated, busy = self.vote
            # Requests are what these rounds have no other use for: here they mean "too late", to
            # wait for the copy (save) and for the upload (stop).
            agreement = self._collective.agree(
                Vote(
                    replicated=replicated,
                    durable_busy=busy,
                    save=waited_ms > COPY_WAIT_MS,
                    stop=waited_ms > UPLOAD_WAIT_MS,
                    step=step,
                    finishing=True,
                    discord=self.discord,
                )
            )
            late = agreement.save
            allowed = allowed or late or self._may_overwrite(step, agreement)
            take = allowed and agreement.replicated and slot == NO_SLOT
            if take:
                slot = self._snapshots.take(step=step, data_state=data_state.to_json())
            durable = allowed and agreement.durable_free and (late or slot != NO_SLOT)
            if durable:
                self._snapshots.take_durable(step=step, data_state=data_state.to_json())
            if take or durable:
                self._snapshots.go_on(lambda: None)
                self._snapshots.wait_whole()
            elif agreement.stop:
                log.warning(
                    "step %d, the last one, goes without a checkpoint in the object store: an "
                    "earlier one has not been stored in %d s",
                    step,
                    UPLOAD_WAIT_MS / 1e3,
                )
                break
            else:
                self._sleep(min(max(POLL_S_MIN, waited_ms / 20e3), POLL_S_MAX))
        # Nobody leaves, and takes its connections along, before everybody has written.
        agreement = self._collective.agree(Vote(step=step, finishing=True, discord=self.discord))
        equal = self._may_overwrite(step, agreement)
        self._held_at_end = not equal or step <= self._doubted_until
        return slot, durable

    def linger(self) -> None:
        """Stay for a while if the last step is not equal everywhere, or its work is doubted.

        Its judge ends this rank. Else the run would be over, and its end state wrong, before
        anybody has looked.
        """
        if self._held_at_end:
            self._sleep(LINGER_S)
