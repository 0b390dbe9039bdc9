"""The last snapshots of a run: each as soon as it may be, with an upload that takes its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.schedule import Schedule
from everstep.data.loader import DataState
from everstep.train import saving
from everstep.train.control import Vote, tally
from everstep.train.report import NO_SLOT
from everstep.train.saving import Saver

LAST_STEP = 10


class Clock:
    """Goes on when somebody sleeps, a second each time."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.asked_s: list[float] = []

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic_ms(self) -> float:
        return self.ms

    def sleep(self, pause_s: float) -> None:
        self.asked_s.append(pause_s)
        self.ms += 1_000


class Prints:
    """Fingerprints that agree."""

    word = 0.0
    begun_step = LAST_STEP - 1
    compared = False

    def told(self):
        return {}


class Slots:
    """Slots whose upload and copy are through at known times; notes what is taken, and when [s]."""

    fingerprints = Prints()

    def __init__(self, clock: Clock, *, stored_s: float, copied_s: float) -> None:
        self._clock, self._stored_s, self._copied_s = clock, stored_s, copied_s
        self.taken: list[tuple[str, float]] = []
        self.whole: list[str] = []

    @property
    def _now_s(self) -> float:
        return self._clock.ms / 1_000

    @property
    def replicated(self) -> bool:
        return self._now_s >= self._copied_s and not self.taken

    @property
    def durable_busy(self) -> bool:
        return self._now_s < self._stored_s

    def take(self, *, step, data_state):
        self.taken.append(("memory", self._now_s))
        return 1

    def take_durable(self, *, step, data_state):
        self.taken.append(("durable", self._now_s))

    def go_on(self, then):
        then()

    def wait_whole(self):
        self.whole = [kind for kind, _ in self.taken]


class Alone:
    """The collective of one rank; notes what of the last snapshots was whole at each round."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.whole: list[list[str]] = []

    def agree(self, vote):
        self.whole.append(self._slots.whole)
        return tally(vote.words(), 1, vote)


def ended(*, stored_s: float, copied_s: float = 0.0, clock: Clock | None = None):
    """What a run's end takes, with what it returns."""
    clock = clock or Clock()
    slots = Slots(clock, stored_s=stored_s, copied_s=copied_s)
    alone = Alone(slots)
    saver = Saver(slots, alone, clock, sleep=clock.sleep)
    returned = saver.at_end(LAST_STEP, DataState())
    return returned, slots.taken, alone.whole


def test_last_snapshots_are_taken_at_once_where_nothing_is_under_way():
    """Both, in one go."""
    returned, taken, whole = ended(stored_s=0)
    assert returned == (1, True)
    assert taken == [("memory", 0), ("durable", 0)]
    assert whole == [[], ["memory", "durable"]]


@pytest.mark.parametrize("stored_s", [30.0, 300.0, 1_200.0])
def test_last_checkpoint_waits_for_an_earlier_upload(stored_s):
    """It is stored however long that takes; what memory holds is whole from the beginning."""
    returned, taken, whole = ended(stored_s=stored_s)
    assert returned == (1, True)
    assert taken == [("memory", 0), ("durable", stored_s)]
    assert whole[1] == ["memory"]


def test_ranks_look_less_often_the_longer_they_wait():
    """Looking is a collective, and there no rank may take long."""
    clock = Clock()
    ended(stored_s=60, clock=clock)
    assert (clock.asked_s[0], clock.asked_s[9], clock.asked_s[-1]) == (0.02, 0.45, 1.0)
    assert clock.asked_s == sorted(clock.asked_s)


def test_last_checkpoint_is_given_up_after_an_upload_that_never_ends(caplog):
    """Before the monitor takes the run for hopeless; the rank's log says so."""
    returned, taken, _ = ended(stored_s=1e9)
    assert returned == (1, False)
    assert taken == [("memory", 0)]
    assert "step 10, the last one, goes without a checkpoint in the object store" in caplog.text
    assert saving.UPLOAD_WAIT_MS < 1_800_000


def test_last_checkpoint_does_not_wait_for_a_peer_that_is_away():
    """Two minutes for the copy of the newest snapshot; then the durable one alone."""
    returned, taken, _ = ended(stored_s=0, copied_s=1e9)
    assert returned == (NO_SLOT, True)
    assert taken == [("durable", 121)]


def test_last_snapshots_wait_for_a_peer_that_comes_back():
    """Neither is taken before: memory's older slot may be all that both hosts have."""
    returned, taken, _ = ended(stored_s=0, copied_s=60)
    assert returned == (1, True)
    assert taken == [("memory", 60), ("durable", 60)]


@pytest.mark.parametrize(
    ("hold", "differs", "waits"),
    [
        (True, (False, False), False),
        (True, (False, True), True),
        (True, (True, False), True),
        (False, (False, True), False),
    ],
)
def test_ranks_whose_last_work_came_out_otherwise_stay_for_its_judge(hold, differs, waits):
    """The run would be over, and wrong: what hosts tell of it may come after all ends."""
    clock = Clock()
    slots = Slots(clock, stored_s=0, copied_s=0)
    saver = Saver(slots, Alone(slots), clock, hold=hold, sleep=clock.sleep)
    vote = Vote(step=LAST_STEP, schedule=Schedule(memory_every_steps=1_000, object_every_steps=0))
    before, last = (replace(tally(vote.words(), 1, vote), rerun_differs=one) for one in differs)
    saver.after_step(LAST_STEP - 1, DataState(), before)
    saver.at_end(LAST_STEP, DataState(), last)
    clock.asked_s.clear()
    saver.linger()
    assert clock.asked_s == ([saving.LINGER_S] if waits else [])
