"""Replays a run's failures under another policy: what its time would have gone to.

The hardware keeps its clock: a host breaks, and is back, when it did, whatever the policy makes of
it; so does a process, and so does a slow host. Which host serves follows from the policy. A failure
that falls into a restart begins it anew; one that falls on a host that is out, or only stands by,
stops nothing; while the job waits or rests there is no process to die. Rejected: replaying the
record's restarts one by one with other numbers, which cannot say what a spare is worth.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Literal

from everstep.core.errors import InvalidInput
from everstep.monitor.ledger import Cause
from everstep.planner.history import (
    CAUSES,
    STRAGGLER,
    Failure,
    History,
    IdleLoss,
    LostHost,
    Spell,
    usual_ms,
)
from everstep.planner.replay_tape import STEPPING, Tape

# A slow host is condemned by the window in which a spell is found, and no sooner: less, and the
# replay would cut spells that nobody could have known of.
STRAGGLER_WINDOW_STEPS: Final = 20
# A failure that lost this many intervals more than saves explain went back further than to a save
# in memory (both copies were gone): the interval did not decide what it cost.
DEEP_INTERVALS: Final = 2
GOLDEN: Final = (math.sqrt(5) - 1) / 2  # its multiples fall evenly into a circle, however many


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is done about failures; None: as it was.

    Attributes:
        interval_ms: work between two saves in memory.
        restart_ms: from a verdict to training, without waits for hosts.
        detection_ms: from a failure to its verdict.
        repair_ms: from a host's loss until it can serve again.
        spares: hosts that stand by at the begin.
        straggler_share: a spell that slows steps by so much or more is ended by a restart.
        no_spare: what is done when no spare is left: wait for a host, or go on with fewer replicas.
    """

    interval_ms: int | None = None
    restart_ms: int | None = None
    detection_ms: int | None = None
    repair_ms: int | None = None
    spares: int | None = None
    straggler_share: float | None = None
    no_spare: Literal["wait", "elastic"] | None = None


AS_IT_WAS: Final = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Where the time went. ``causes`` sum to the wall time exactly.

    ``block_walls_ms`` and ``block_useful_ms`` are of the stretches that the record's failures cut
    the wall time into: the same ones under every policy.
    """

    causes: Mapping[str, int]
    goodput: float
    stops: int
    block_walls_ms: tuple[int, ...]
    block_useful_ms: tuple[float, ...]

    @property
    def useful_ms(self) -> int:
        """Return the time of useful steps."""
        return self.causes[Cause.USEFUL]


def replay(history: History, policy: Policy = AS_IT_WAS) -> Replayed:
    """Return where a run's time would have gone under a policy.

    Raises:
        InvalidInput: when the policy makes no sense.
    """
    if policy.interval_ms is not None and policy.interval_ms <= 0:
        raise InvalidInput("an interval of 0 between saves leaves no time for work")
    run = _Run(history, policy)
    run.play()
    share = _useful_share(history.measured)
    causes = dict(run.tape.causes)
    for cause, part in share.items():
        causes[cause] = run.tape.causes[STEPPING] * part
    whole = _whole(causes, history.wall_ms)
    return Replayed(
        causes=whole,
        goodput=whole[Cause.USEFUL] / history.wall_ms,
        stops=run.stops,
        block_walls_ms=tuple(run.tape.block_walls_ms),
        block_useful_ms=tuple(kept * share[STEPPING] for kept in run.tape.kept_ms),
    )


def settle_ms(history: History, *, host: bool) -> int:
    """Return how old a save had to be before a restart could use it, as the record shows.

    A failure that lost L went back to a save that was L old, so it had settled; the next one, an
    interval younger, had not. Each failure allows an interval of ages; the youngest age that most
    of them allow is taken.

    Args:
        history: of the run.
        host: whether hosts were lost, and with them one copy of their ranks' saves.
    """
    cycle_ms = history.interval_ms + history.stall_ms
    lost = [
        failure.lost_work_ms
        for failure in history.unplanned
        if bool(failure.lost) is host and failure.lost_work_ms > 0
    ]
    ages = sorted({0} | {max(ms - cycle_ms, 0) for ms in lost})
    return max(ages, key=lambda age: (sum(ms - cycle_ms <= age <= ms for ms in lost), -age))


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


class _Run:
    """One replay: the events of the record, and the timers that the policy sets."""

    def __init__(self, history: History, policy: Policy) -> None:
        self._history = history
        self._policy = policy
        self._usual_restart_ms = usual_ms([f.restart_ms for f in history.unplanned])
        self._usual_detection_ms = usual_ms([f.detection_ms for f in history.unplanned])
        self._settle_ms = {host: settle_ms(history, host=host) for host in (False, True)}
        interval_ms = policy.interval_ms or history.interval_ms
        self.tape = Tape(
            interval_ms,
            history.stall_ms,
            stored_every_ms=history.stored_every_ms,
            stored_after_ms=history.stored_after_ms,
        )
        self.stops = 0
        self._cycle_ms = history.interval_ms + history.stall_ms
        self._queue: list[tuple[int, int, int, _Then, tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._epoch = 0  # timers of older ones are void
        self._mode = _Mode.STARTUP
        self._restart_ms = 0
        self._wanted: tuple[str, ...] = ()  # who took over in the record
        standby = _standby(history, policy)
        self._up = {*history.hosts, *standby}
        self._fleet = set(self._up)
        self._seats = set(history.hosts)
        self._full = len(history.hosts)
        self._capacity = 1.0
        self._slow: list[Spell] = []
        self._over: set[Spell] = set()  # spells that a restart has ended

    def play(self) -> None:
        """Go through the whole record."""
        history = self._history
        for failure in history.failures:
            self._at(failure.at_ms, _FAILURE, self._fails, failure)
        for loss in (*history.idle_losses, *_losses_of_more(history, self._policy)):
            self._at(loss.at_ms, _FAILURE, self._breaks, loss.host, loss.at_ms)
        for arrival in history.arrivals:
            self._at(arrival.at_ms, _RETURN, self._arrives, arrival.host_id)
        for spell in history.spells:
            self._at(spell.begin_ms, _SPELL, self._slows, spell)
            self._at(spell.end_ms, _SPELL, self._heals, spell)
        self.tape.lay(min(history.launch_waiting_ms, history.wall_ms), Cause.WAITING_FOR_HOSTS)
        self._timer(history.startup_ms, self._trains)
        last_ms = history.wall_ms - history.finish_ms
        self._at(last_ms, _TIMER, self._finishes)
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
        self.tape.train(at_ms, factor=factor, capacity=self._capacity)

    def _enter(self, mode: _Mode) -> None:
        self._mode = mode
        self._epoch += 1

    # -- what the record says

    def _fails(self, failure: Failure) -> None:
        self.tape.cut()
        known = [host for host in failure.lost if host.host_id in self._fleet]
        seated = [host for host in known if host.host_id in self._seats & self._up]
        for host in known:
            self._goes(host, failure.at_ms)
        if failure.planned:
            self._asked(failure)
            return
        self._wanted += failure.replacements
        if seated or not failure.lost:
            self._stops(failure, failure.detection_ms, failure.restart_ms)

    def _breaks(self, host: LostHost, at_ms: int) -> None:
        """A host that stood by in the record breaks; here it may serve."""
        if host.host_id not in self._fleet:
            return
        serves = host.host_id in self._seats & self._up
        self._goes(host, at_ms)
        if serves:
            failure = Failure(at_ms=at_ms, kind="host_lost", lost=(host,))
            self._stops(failure, self._usual_detection_ms, self._usual_restart_ms)

    def _goes(self, host: LostHost, at_ms: int) -> None:
        if host.host_id not in self._up:
            return  # it is out already
        self._up.discard(host.host_id)
        out_ms = host.out_ms if self._policy.repair_ms is None else self._policy.repair_ms
        if out_ms is not None:
            self._at(at_ms + out_ms, _RETURN, self._returns, host.host_id)

    def _arrives(self, host_id: str) -> None:
        self._fleet.add(host_id)
        self._returns(host_id)

    def _returns(self, host_id: str) -> None:
        self._up.add(host_id)
        if self._mode is _Mode.WAITING:
            self._looks_for_hosts()
        elif self._mode is _Mode.TRAINING:
            self._grows()
            self._cuts_spells()

    def _slows(self, spell: Spell) -> None:
        self._slow.append(spell)
        if self._is_cut(spell):
            window_ms = round(STRAGGLER_WINDOW_STEPS * self._history.step_ms * spell.factor)
            self._at(spell.begin_ms + window_ms, _SPELL, self._cuts_spells)

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
        if self._mode is _Mode.TRAINING:
            self.tape.rolled_back(failure.lost_work_ms)
        self._wanted += failure.replacements
        self.stops += 1
        self._restart_ms = self._restart_of(failure.restart_ms)
        self._enter(_Mode.PAUSED)
        self._timer(failure.paused_ms, self._looks_for_hosts)

    def _is_needless(self, failure: Failure) -> bool:
        """Say whether the restart was for a slow host that this policy has taken out before."""
        window_ms = STRAGGLER_WINDOW_STEPS * self._history.step_ms
        return failure.kind == "restart" and any(
            abs(failure.at_ms - spell.end_ms) <= window_ms for spell in self._over
        )

    def _stops(self, failure: Failure, detection_ms: int, restart_ms: int) -> None:
        """Something breaks that the job needs."""
        if self._mode in {_Mode.WAITING, _Mode.PAUSED, _Mode.FINISH}:
            return  # there is no process to die; a host that is gone will be missed
        if self._mode is _Mode.TRAINING:
            self._loses(failure)
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
        settled_ms = self._settle_ms[bool(failure.lost)]
        if failure.lost_work_ms > settled_ms + DEEP_INTERVALS * self._cycle_ms:
            self.tape.rolled_back(failure.lost_work_ms)
        else:
            self.tape.broke(settled_ms)

    def _looks_for_hosts(self) -> None:
        """Restart on the hosts that there are, or wait for more."""
        seats = self._seats_for(self._replicas())
        if not seats:
            self._enter(_Mode.WAITING)
            return
        self._seats = seats
        self._wanted = ()
        self._capacity = self._replicas() / self._history.replicas
        self._enter(_Mode.RESTART)
        self._timer(self._restart_ms, self._trains)

    def _trains(self) -> None:
        self._enter(_Mode.TRAINING)
        if not self._seats <= self._up:  # lost while nothing told of it
            self._restart_ms = self._restart_of(self._usual_restart_ms)
            self._looks_for_hosts()
            return
        self._grows()
        self._cuts_spells()

    def _grows(self) -> None:
        """Take replicas back in, as soon as there are hosts for them."""
        if self._capacity < 1 and self._replicas() > self._capacity * self._history.replicas:
            self._restarts_on_purpose()

    def _cuts_spells(self) -> None:
        """Replace a slow host, if it has been found and a spare is there."""
        if self._mode is not _Mode.TRAINING:
            return
        for spell in self._slow:
            found_ms = STRAGGLER_WINDOW_STEPS * self._history.step_ms * spell.factor
            due = self.tape.at_ms >= spell.begin_ms + round(found_ms)
            if self._is_cut(spell) and due and self._up - self._seats:
                self._over.add(spell)
                self._slow.remove(spell)
                host_id = max(self._seats)  # which one, step times do not say
                self._up.discard(host_id)
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

    def _restart_of(self, recorded_ms: int) -> int:
        return recorded_ms if self._policy.restart_ms is None else self._policy.restart_ms

    # -- hosts

    def _replicas(self) -> int:
        """Return how many replicas there are hosts for, by the policy."""
        whole = self._history.replicas
        fitting = min(len(self._up) * whole // self._full, whole) if self._full else whole
        return fitting if self._policy.no_spare == "elastic" or fitting == whole else 0

    def _seats_for(self, replicas: int) -> set[str]:
        """Choose hosts: those that serve already, who took over in the record, then by name."""
        count = math.ceil(replicas * self._full / self._history.replicas)
        wanted = set(self._wanted)
        order = sorted(
            self._up, key=lambda host: (host not in self._seats, host not in wanted, host)
        )
        return set(order[:count])


def _standby(history: History, policy: Policy) -> list[str]:
    """Return who stands by: of the record's spares the first ones, then hosts that it never had."""
    there = list(history.spares)
    if policy.spares is None:
        return there
    return (there + _more(len(there), policy.spares))[: policy.spares]


def _more(there: int, wanted: int) -> list[str]:
    return [f"~spare-{i:05d}" for i in range(wanted - there)]  # the last ones in order of names


def _losses_of_more(history: History, policy: Policy) -> list[IdleLoss]:
    """Return how hosts that the record never had break: each as one of the record's did.

    At other times, spread evenly: a spare that never breaks is worth a third more than a real one
    on a fleet of eight (tests/sim/fleet/test_counterfactuals.py).
    """
    broke: dict[str, list[tuple[int, LostHost]]] = {}
    for at_ms, host in [
        *((failure.at_ms, host) for failure in history.failures for host in failure.lost),
        *((loss.at_ms, loss.host) for loss in history.idle_losses),
    ]:
        broke.setdefault(host.host_id, []).append((at_ms, host))
    models = sorted({*history.hosts, *history.spares})
    more = _more(len(history.spares), policy.spares or 0)
    return [
        IdleLoss(
            at_ms=round(at_ms + history.wall_ms * GOLDEN * (i + 1)) % history.wall_ms,
            host=replace(host, host_id=host_id),
        )
        for i, host_id in enumerate(more)
        for at_ms, host in broke.get(models[i % len(models)], ())
    ]


def _useful_share(measured: Mapping[str, int]) -> dict[str, float]:
    """Return how stepping time divides into useful steps and what the replay does not model."""
    modelled = {*CAUSES, STRAGGLER} - {Cause.USEFUL.value, Cause.DATA_WAIT.value}
    stepping = {cause: ms for cause, ms in measured.items() if cause not in modelled}
    total = sum(stepping.values())
    if not stepping.get(Cause.USEFUL):
        return {Cause.USEFUL.value: 1.0}
    return {str(cause): ms / total for cause, ms in stepping.items()}


def _whole(causes: Mapping[str, float], total_ms: int) -> dict[str, int]:
    """Round to milliseconds so that the sum stays what it is: the largest remainders go up."""
    floors = {cause: math.floor(max(ms, 0.0)) for cause, ms in causes.items()}
    short = total_ms - sum(floors.values())
    by_remainder = sorted(causes, key=lambda cause: (floors[cause] - causes[cause], cause))
    for cause in by_remainder[:short]:
        floors[cause] += 1
    assert sum(floors.values()) == total_ms, f"{causes} do not sum to {total_ms} ms"
    return floors
