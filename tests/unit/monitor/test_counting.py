"""What is remembered of hosts' counts and clocks, and what is new of it."""

from __future__ import annotations

import pytest

from everstep.monitor.commands import SettleNote
from everstep.monitor.counting import HISTORY_MS, Counting
from everstep.monitor.detectors.clocks import MINUTE_MS, ClockMinute, clock_fault
from everstep.monitor.detectors.counters import FRESH_MS, WINDOW_MS
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action, WatchedHost
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import ErrorCount, Heartbeat

WATCH = Watch(job_id="j", hosts=tuple(WatchedHost(host_id=f"h{i}", ranks=(i,)) for i in range(3)))
NOBODY = Verdict(
    kind="hang", action=Action.RESTART, ranks=(), hosts=(), reason="all wait", failed_at_ms=0
)


class Clock:
    """Set by hand."""

    def __init__(self) -> None:
        self.ms = 100 * MINUTE_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return float(self.ms)


@pytest.fixture
def clock() -> Clock:
    """The monitor's."""
    return Clock()


@pytest.fixture
def counting(clock: Clock) -> Counting:
    """Nothing heard yet."""
    return Counting(clock)


def count(kind: str, total: int, age_ms: int = 0) -> ErrorCount:
    """As a heartbeat has it."""
    return ErrorCount(kind=kind, part="gpu0", count=total, age_ms=age_ms)


def news(counting: Counting, clock: Clock) -> list[tuple[str, str, tuple[str, ...]]]:
    """What is new, a second later."""
    clock.ms += 1_000
    return [
        ("settled", one.kind, ())
        if isinstance(one, SettleNote)
        else (str(one.action), one.kind, one.hosts)
        for one in counting.news(WATCH, clock.ms)
    ]


def test_fatal_error_is_said_once(counting, clock):
    """Totals come with every heartbeat."""
    for _ in range(3):
        counting.told("h1", "e1", [count("gpu_uncorrected", 1)])
    assert news(counting, clock) == [("DRAIN", "host_faulty", ("h1",))]
    counting.told("h1", "e1", [count("gpu_uncorrected", 1, age_ms=1_000)])
    assert news(counting, clock) == []


def test_growth_is_what_counts(counting, clock):
    """A rate that is noted, that lasts, and that is over."""
    counting.told("h1", "e1", [count("gpu_corrected", 1_000, age_ms=HISTORY_MS + 1)])
    assert news(counting, clock) == []
    counting.told("h1", "e1", [count("gpu_corrected", 1_100)])
    assert news(counting, clock) == [("NOTE", "errors_rising", ("h1",))]
    for total in (1_200, 1_300):
        clock.ms += WINDOW_MS - 1_000
        counting.told("h1", "e1", [count("gpu_corrected", total)])
        said = news(counting, clock)
    assert said == [("DRAIN", "errors_rising", ("h1",))]
    clock.ms += WINDOW_MS
    assert news(counting, clock) == [("settled", "errors_rising", ())]


def test_new_monitor_takes_what_is_young_and_leaves_what_is_old(counting, clock):
    """Each count says how old it is."""
    counting.told("h0", "e1", [count("gpu_xid_79", 2, age_ms=FRESH_MS // 2)])
    counting.told("h1", "e1", [count("gpu_xid_79", 2, age_ms=2 * FRESH_MS)])
    assert [fault.host_id for fault in counting.fatal(["h0", "h1"], clock.ms)] == ["h0"]


def test_host_that_was_booted_counts_anew(counting, clock):
    """Fewer than before is not less than nothing."""
    counting.told("h1", "e1", [count("gpu_xid_79", 3, age_ms=2 * HISTORY_MS)])
    counting.told("h1", "e2", [count("gpu_xid_79", 1)])
    [fault] = counting.fatal(["h1"], clock.ms)
    assert fault.count == 1


def test_totals_that_were_overtaken_on_their_way_are_not_counted_anew(counting, clock):
    """The answer to a probe came before a heartbeat that was sent first: nobody was booted."""
    counting.told("h1", "e1", [count("gpu_xid_79", 3, age_ms=2 * HISTORY_MS)])
    counting.told("h1", "e1", [count("gpu_xid_79", 4)])
    for total in (3, 4):
        counting.told("h1", "e1", [count("gpu_xid_79", total)])
    [fault] = counting.fatal(["h1"], clock.ms)
    assert fault.count == 1


def test_idle_host_that_is_broken_is_cordoned(counting, clock):
    """Not one that serves a job, nor one that is cordoned already; and once."""
    for host_id in ("busy", "idle", "cordoned"):
        counting.told(host_id, "e1", [count("gpu_lost", 1)])
    [verdict] = counting.idle({"busy", "idle"}, {"busy"}, clock.ms)
    assert (verdict.kind, verdict.action, verdict.hosts) == (
        "host_faulty",
        Action.REPLACE,
        ("idle",),
    )
    counting.forget("idle")
    assert counting.idle({"busy", "idle"}, {"busy"}, clock.ms) == []
    counting.told("idle", "e1", [count("gpu_lost", 1, age_ms=5_000)])
    assert counting.idle({"busy", "idle"}, {"busy"}, clock.ms) == []


def test_run_that_hangs_with_a_broken_host_is_not_started_there_again(counting, clock):
    """All ranks wait for the one whose device is gone; a rank that stands out is the cause."""
    counting.told("h2", "e1", [count("gpu_xid_79", 1)])
    verdict = counting.instead(NOBODY, WATCH, all_wait=True, now_ms=clock.ms)
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts, verdict.ranks) == (
        "host_faulty",
        Action.REPLACE,
        ("h2",),
        (2,),
    )
    assert counting.instead(NOBODY, WATCH, all_wait=False, now_ms=clock.ms) == NOBODY
    assert counting.instead(None, WATCH, all_wait=False, now_ms=clock.ms) is None


def beats(counting: Counting, clock: Clock, host_id: str, minutes: int, off_ms, late_ms=0) -> None:
    """Heartbeats of some minutes, four a minute, one of them in time."""
    for i in range(4 * minutes):
        clock.ms += MINUTE_MS // 4
        at_ms = clock.ms - off_ms(i) - (late_ms if i % 4 else 1)
        counting.heard(Heartbeat(host_id=host_id, at_ms=at_ms, clock_unsynchronised=True))


def test_clock_that_is_off_is_noted_with_the_numbers(counting, clock):
    """By the smallest difference of a minute: most heartbeats are late here."""
    beats(counting, clock, "h1", 3, lambda _: 2_500, late_ms=400)
    beats(counting, clock, "h0", 3, lambda _: 0, late_ms=400)
    clock.ms += 1_000
    [note] = [one for one in counting.news(WATCH, clock.ms) if isinstance(one, Verdict)]
    assert (note.kind, note.action, note.hosts) == ("clock_off", Action.NOTE, ("h1",))
    assert note.reason == (
        "h1: its clock is 2501 ms behind (limit 1000), and its kernel says that nothing keeps it "
        "right: times that it tells are off by as much"
    )


def test_clock_is_not_judged_by_one_minute(counting, clock):
    """It may have begun with a queue of late messages."""
    beats(counting, clock, "h1", 1, lambda _: 2_500)
    assert news(counting, clock) == []


def test_clock_that_drifts_is_noted_before_it_is_off():
    """In parts per million, over the minutes seen."""
    slow = [ClockMinute(minute=i, off_ms=60 * i) for i in range(6)]
    assert clock_fault(slow, unsynchronised=False) == (
        "its clock goes 1000 ppm too slow over 5 min: times that it tells are off by as much"
    )
    assert clock_fault(slow[:5], unsynchronised=False) == ""
    fast = [ClockMinute(minute=i, off_ms=-60 * i) for i in range(6)]
    assert "too fast" in clock_fault(fast, unsynchronised=False)


@pytest.mark.parametrize("off_ms", [-1_000, 0, 1_000])
def test_clock_within_a_second_is_no_fault(off_ms):
    """Whatever its kernel says."""
    minutes = [ClockMinute(minute=i, off_ms=off_ms) for i in range(10)]
    assert clock_fault(minutes, unsynchronised=True) == ""
    assert clock_fault([], unsynchronised=True) == ""
