"""Goes through a record event by event, and lets a policy answer.

What the record says (failures, hosts that are back, slow spells, a person's wishes) comes at its
own time; what the policy answers (verdicts, restarts, waits) are timers of the replay.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from everstep.monitor.ledger import Cause
from everstep.planner.history import Cadence, Failure, History, LostHost, Spell, usual_ms
from everstep.planner.replay_hosts import Hosts, losses_of_more
from everstep.planner.replay_policy import Policy
from everstep.planner.replay_tape import Tape

# A slow host is condemned by the window in which a spell is found, and no sooner: less, and the
# replay would cut spells that nobody could have known of.
STRAGGLER_WINDOW_STEPS: Final = 20
# A failure that lost this many intervals more than saves explain went back further than to a save
# in memory (both copies were gone): the interval did not decide what it cost.
DEEP_INTERVALS: Final = 2


class _Mode(StrEnum):
    """What the job does; the values of all but the training ones are the ledger's causes."""

    STARTUP = Cause.STARTUP.value
    DETECTION = Cause.DETECTION.value
    PAUSED = Cause.PAUSED.value
    WAITING = Cause.WAITING_FOR_HOSTS.value
    RESTART = Cause.RESTART.value
    FINISH = Cause.CHECKPOINT_STALL.value
    TRAINING = "training"


# Of events at one moment, a failure comes before the timer that it breaks off, and a host that is
# back is there before anybody looks for one.
_RETURN, _FAILURE, _SPELL, _TIMER = range(4)
_Then = Callable[..., None]


class Run:
    """One replay: the events of the record, and the timers that the policy sets."""

    def __init__(self, history: History, policy: Policy, settled_ms: Mapping[bool, int]) -> None:
        """``settled_ms``: how old a usable save is, by whether a host was lost."""
        self.stops = 0
        self.tape = Tape(
            policy.interval_ms or history.interval_ms,
            history.stall_ms,
            stored_every_ms=history.stored_every_ms,
            stored_after_ms=history.stored_after_ms,
        )
        self._history = history
        self._policy = policy
        self._settled_ms = settled_ms
        self._usual_restart_ms = usual_ms([f.restart_ms for f in history.unplanned])
        self._usual_detection_ms = usual_ms([f.detection_ms for f in history.unplanned])
        self._last_ms = history.wall_ms - history.finish_ms
        self._window_ms = STRAGGLER_WINDOW_STEPS * history.step_ms
        self._queue: list[tuple[int, int, int, _Then, tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._epoch = 0  # timers of older ones are void
        self._mode = _Mode.STARTUP
        self._restart_ms = 0
        self._hosts = Hosts(history, policy)
        self._slow: list[Spell] = []
        self._over: set[Spell] = set()  # spells that a restart has ended
        self._moves: list[Failure] = []  # off hosts that still work, once there are spares

    def play(self) -> None:
        """Go through the whole record."""
        history = self._history
        for failure in history.failures:
            self._at(failure.at_ms, _FAILURE, self._fails, failure)
        for loss in (*history.idle_losses, *losses_of_more(history, self._policy)):
            self._at(loss.at_ms, _FAILURE, self._breaks, loss.host, loss.at_ms)
        for arrival in history.arrivals:
            self._at(arrival.at_ms, _RETURN, self._returns, arrival.host_id)
        for spell in history.spells:
            self._at(spell.begin_ms, _SPELL, self._slows, spell)
            self._at(spell.end_ms, _SPELL, self._heals, spell)
        for cadence in history.cadences:
            self._at(cadence.at_ms, _SPELL, self._changes, cadence)
        self.tape.lay(min(history.launch_waiting_ms, history.wall_ms), Cause.WAITING_FOR_HOSTS)
        self._timer(history.startup_ms, self._trains)
        self._at(self._last_ms, _TIMER, self._finishes)
        while self._queue and self._queue[0][0] <= history.wall_ms:
            at_ms, _, _, then, args = heapq.heappop(self._queue)
            self._forward(max(at_ms, self.tape.at_ms))
            then(*args)
        self._forward(history.wall_ms)
        self.tape.saved()

    # -- time

    def _at(self, at_ms: int, rank: int, then: _Then, *args: Any) -> None:
        heapq.heappush(self._queue, (at_ms, rank, next(self._order), then, args))

    def _timer(self, delay_ms: int, then: _Then, *args: Any) -> None:
        """Call later, unless something else begins meanwhile."""
        self._at(self.tape.at_ms + delay_ms, _TIMER, self._rings, self._epoch, then, args)

    def _rings(self, epoch: int, then: _Then, args: tuple[Any, ...]) -> None:
        if epoch == self._epoch:
            then(*args)

    def _forward(self, at_ms: int) -> None:
        if self._mode is not _Mode.TRAINING:
            self.tape.lay(at_ms, self._mode.value)
            return
        factor = max((spell.factor for spell in self._slow), default=1.0)
        self.tape.train(at_ms, factor=factor, capacity=self._hosts.capacity)

    def _enter(self, mode: _Mode) -> None:
        self._mode = mode
        self._epoch += 1

    # -- what the record says

    def _fails(self, failure: Failure) -> None:
        self.tape.cut()
        if failure.kind == "drain":
            self._moves.append(failure)
            self._improves()
            return
        hit = [host for host in failure.lost if self._hosts.serves(host.host_id)]
        for host in failure.lost:
            self._goes(host, failure.at_ms)
        self._hosts.prefer(failure.replacements)
        if failure.planned:
            self._asked(failure)
        elif hit or not failure.lost:
            self._stops(failure, failure.detection_ms, failure.restart_ms)

    def _moves_off(self, failure: Failure) -> None:
        """Move off hosts that still work, if they serve here and spares can take their seats."""
        hit = [host for host in failure.lost if self._hosts.serves(host.host_id)]
        if failure.lost and self._hosts.spares_count < len(hit):
            return  # the job runs on
        self._moves.remove(failure)
        for host in failure.lost:
            self._goes(host, self.tape.at_ms)
        self._hosts.prefer(failure.replacements)
        if hit or not failure.lost:
            self._asked(failure)

    def _changes(self, cadence: Cadence) -> None:
        """Saves are another time apart, unless the policy says how far they are."""
        interval_ms = self._policy.interval_ms or cadence.interval_ms
        self.tape.save_every(interval_ms, cadence.stored_every_ms)

    def _breaks(self, host: LostHost, at_ms: int) -> None:
        """A host that stood by in the record breaks; here it may serve."""
        serves = self._hosts.serves(host.host_id)
        self._goes(host, at_ms)
        if serves:
            failure = Failure(at_ms=at_ms, kind="host_lost", lost=(host,))
            self._stops(failure, self._usual_detection_ms, self._usual_restart_ms)

    def _goes(self, host: LostHost, at_ms: int) -> None:
        if not self._hosts.breaks(host.host_id):
            return
        out_ms = host.out_ms if self._policy.repair_ms is None else self._policy.repair_ms
        if out_ms is not None:
            self._at(at_ms + out_ms, _RETURN, self._returns, host.host_id)

    def _returns(self, host_id: str) -> None:
        self._hosts.returns(host_id)
        if self._mode is _Mode.WAITING:
            self._looks_for_hosts()
        elif self._mode is _Mode.TRAINING:
            self._improves()

    def _slows(self, spell: Spell) -> None:
        self._slow.append(spell)
        if self._is_cut(spell):
            self._at(self._found_ms(spell), _SPELL, self._improves)

    def _heals(self, spell: Spell) -> None:
        if spell in self._slow:
            self._slow.remove(spell)

    def _finishes(self) -> None:
        if self._mode is _Mode.TRAINING:
            self.tape.saved()
            self._enter(_Mode.FINISH)

    # -- what the policy makes of it

    def _asked(self, failure: Failure) -> None:
        """A person stops or restarts the job."""
        if self._mode is _Mode.FINISH or self._is_needless(failure):
            return
        self.tape.rolled_back(failure.lost_work_ms)  # who wants another state wants it anyway
        self.stops += 1
        self._restart_ms = self._restart_of(failure.restart_ms)
        self._enter(_Mode.PAUSED)
        self._timer(failure.detection_ms + failure.paused_ms, self._looks_for_hosts)

    def _is_needless(self, failure: Failure) -> bool:
        """Say whether the restart was for a slow host that this policy has taken out before."""
        return failure.kind == "restart" and any(
            abs(failure.at_ms - spell.end_ms) <= self._window_ms for spell in self._over
        )

    def _stops(self, failure: Failure, detection_ms: int, restart_ms: int) -> None:
        """Something breaks that the job needs."""
        if self._mode is _Mode.FINISH:
            return
        self._loses(failure)
        if self._mode in {_Mode.WAITING, _Mode.PAUSED}:
            return  # there is no process to die; a host that is gone will be missed
        self.stops += 1
        wanted_ms = self._restart_of(restart_ms)
        if self._mode is _Mode.DETECTION:  # one verdict for both
            self._restart_ms = max(self._restart_ms, wanted_ms)
            return
        self._restart_ms = wanted_ms
        self._enter(_Mode.DETECTION)
        found_ms = self._policy.detection_ms
        self._timer(detection_ms if found_ms is None else found_ms, self._looks_for_hosts)

    def _loses(self, failure: Failure) -> None:
        """Lose what no save had caught; with both copies of one gone, what was lost with them."""
        settled_ms = self._settled_ms[bool(failure.lost)]
        cycle_ms = self._history.cycle_ms(failure.at_ms)
        deep = failure.lost_work_ms > settled_ms + DEEP_INTERVALS * cycle_ms
        if deep or failure.rollback:  # no save in memory has decided where it went back to
            self.tape.rolled_back(failure.lost_work_ms)
        else:
            self.tape.broke(settled_ms)

    def _looks_for_hosts(self) -> None:
        """Restart on the hosts that there are, or wait for more."""
        if self._hosts.seat():
            self._enter(_Mode.RESTART)
            self._timer(self._restart_ms, self._trains)
        else:
            self._enter(_Mode.WAITING)

    def _trains(self) -> None:
        if self.tape.at_ms >= self._last_ms:
            self._enter(_Mode.FINISH)
            return
        self._enter(_Mode.TRAINING)
        self._improves()

    def _improves(self) -> None:
        """Restart on purpose, if that gives more replicas, or gets rid of a slow host."""
        for failure in tuple(self._moves):
            if self._mode is _Mode.TRAINING:
                self._moves_off(failure)
        if self._mode is not _Mode.TRAINING:
            return
        if self._hosts.may_grow:
            self._restarts_on_purpose()
            return
        for spell in self._slow:
            due = self._is_cut(spell) and self._found_ms(spell) <= self.tape.at_ms
            if due and self._hosts.spare:
                self._over.add(spell)
                self._slow.remove(spell)
                host_id = self._hosts.take_one_out()
                self._at(spell.end_ms, _RETURN, self._returns, host_id)
                self._restarts_on_purpose()
                return

    def _restarts_on_purpose(self) -> None:
        self.tape.saved()
        self.stops += 1
        self._restart_ms = self._restart_of(self._usual_restart_ms)
        self._looks_for_hosts()

    def _is_cut(self, spell: Spell) -> bool:
        share = self._policy.straggler_share
        return share is not None and spell.factor - 1 >= share

    def _found_ms(self, spell: Spell) -> int:
        """Return when a spell has lasted long enough to be believed."""
        return spell.begin_ms + round(self._window_ms * spell.factor)

    def _restart_of(self, recorded_ms: int) -> int:
        return recorded_ms if self._policy.restart_ms is None else self._policy.restart_ms
