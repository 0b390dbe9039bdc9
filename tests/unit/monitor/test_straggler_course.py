"""Putting steps together, host by host."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from everstep.monitor.detectors.straggler import Crew, Limits, Window
from everstep.monitor.detectors.straggler_course import LATE_STEPS, StragglerCourse

LIMITS = Limits(
    part_steps=3,
    part_ms_min=600.0,
    windows=(Window(parts=3, ratio_min=1.06),),
    slow_share_min=1.0,
)
WINDOW = 9
CREW = Crew(["stage 0"] * 4, ["h0", "h0", "h1", "h1"])
RANKS = {"h0": (0, 1), "h1": (2, 3)}


@dataclass(frozen=True)
class Own:
    """What a rank tells."""

    rank: int
    step: int
    own_ms: float
    first: bool = False
    step_time_ms: float = 200.0


def message(host: str, step: int, *, slow: int | None = None, first: bool = False) -> list[Own]:
    """Return a host's message about a step; rank ``slow`` takes half as long again."""
    return [Own(rank, step, 150.0 if rank == slow else 100.0, first=first) for rank in RANKS[host]]


def course() -> StragglerCourse:
    """Return that of generation 3."""
    return StragglerCourse(3, CREW, LIMITS)


def feed(into: StragglerCourse, steps: range, **how) -> list:
    """Tell whole steps; returns what is judged."""
    return [
        judgement
        for step in steps
        for host in RANKS
        for judgement in into.told(3, message(host, step, **how))
    ]


def test_window_is_judged_once_it_is_whole_and_then_after_every_part():
    """Windows overlap: whoever is slow is named at most a part after a window of slowness."""
    judged = feed(course(), range(1, 16))
    assert [(one.first_step, one.last_step) for one in judged] == [(1, 9), (4, 12), (7, 15)]


def test_part_of_short_steps_has_more_of_them():
    """So that a window is as long as the neighbours of a busy machine stay the same."""
    short = course()
    judged = []
    for step in range(1, 41):
        told = [Own(rank, step, 50.0, step_time_ms=50.0 + rank) for rank in range(4)]
        judged += short.told(3, told)
    # 53 ms by the slowest: 12 steps come to 600 ms, 11 do not.
    assert [(one.first_step, one.last_step) for one in judged] == [(1, 36)]


def test_rank_that_becomes_slow_is_named_a_part_after_its_window_at_the_latest():
    """Its slowness begins at a part's last step."""
    steps = course()
    feed(steps, range(1, 9))
    judged = feed(steps, range(9, 25), slow=2)
    named = [one.last_step for one in judged if one.findings]
    assert named[0] == 9 + WINDOW
    assert named[0] <= 8 + WINDOW + LIMITS.part_steps
    (finding,) = next(one for one in judged if one.findings).findings
    assert (finding.host_id, finding.ranks) == ("h1", (2,))


def test_host_that_is_half_of_its_stage_is_named_if_it_has_become_slow():
    """From the start on nobody knows which half is the odd one."""
    for sound_steps, hosts in ((12, {"h0"}), (0, set())):
        steps = course()
        feed(steps, range(1, sound_steps + 1))
        judged = []
        for step in range(sound_steps + 1, 34):
            judged += steps.told(3, [Own(rank, step, 150.0) for rank in (0, 1)])
            judged += steps.told(3, [Own(rank, step, 100.0) for rank in (2, 3)])
        assert {found.host_id for one in judged for found in one.findings} == hosts


def test_first_step_of_a_generation_is_not_compared():
    """It warms up, on some ranks longer than on others."""
    steps = course()
    assert feed(steps, range(1, 2), slow=0, first=True) == []
    assert [(one.first_step, one.last_step) for one in feed(steps, range(2, 11))] == [(2, 10)]


def test_other_generations_are_ignored():
    """A late message of the old one, or an early one of the next."""
    steps = course()
    for generation in (2, 4):
        for step in range(1, 20):
            for host in RANKS:
                assert steps.told(generation, message(host, step)) == []


def test_message_that_comes_twice_counts_once():
    """Hosts tell again when they are asked for steps that somebody missed."""
    steps = course()
    judged = []
    for step in range(1, WINDOW + 1):
        judged += steps.told(3, message("h0", step))
        judged += steps.told(3, message("h0", step, slow=0))
        judged += steps.told(3, message("h1", step))
        judged += steps.told(3, message("h0", step, slow=0))
    (judged,) = judged
    assert judged.ratios == (1.0,) * 4


def test_host_that_is_silent_does_not_stop_the_others():
    """Its steps are taken without it a few steps later, and its ranks are judged by nobody."""
    crew = Crew(["stage 0"] * 6, ["h0", "h0", "h0", "h0", "h1", "h1"])
    steps = StragglerCourse(3, crew, LIMITS)
    judged = []
    for step in range(1, WINDOW + LATE_STEPS + 1):
        judged += steps.told(3, [Own(rank, step, 100.0) for rank in (0, 1, 2)])
        judged += steps.told(3, [Own(3, step, 150.0)])
    assert [one.last_step for one in judged] == [WINDOW]
    assert [one.ranks for one in judged[0].findings] == [(3,)]


def test_agents_that_do_not_tell_own_times_give_no_window():
    """An older agent's zero is no time."""
    steps = course()
    for step in range(1, 30):
        for ranks in RANKS.values():
            told = [Own(rank, step, 0.0) for rank in ranks]
            assert steps.told(3, told) == []


def test_rank_that_does_not_exist_is_ignored():
    """What is told of it belongs to no placement."""
    steps = course()
    judged = []
    for step in range(1, WINDOW + 1):
        steps.told(3, [Own(7, step, 100.0), Own(-1, step, 100.0)])
        judged += feed(steps, range(step, step + 1))
    assert [(one.last_step, one.ratios) for one in judged] == [(WINDOW, (1.0,) * 4)]


def judged_of(messages: list[list[Own]]) -> list:
    """Return all that is judged of some messages."""
    steps = course()
    return [judgement for told in messages for judgement in steps.told(3, told)]


@given(st.sets(st.integers(0, 13)), st.lists(st.integers(0, 43), max_size=10))
def test_order_and_repetition_of_messages_change_nothing(swapped, repeated):
    """Messages overtake one another and come again: the same windows, the same verdicts."""
    messages = [
        message(host, step, slow=3 if step > 8 else None) for step in range(1, 23) for host in RANKS
    ]
    expected = judged_of(messages)
    assert any(judgement.findings for judgement in expected)
    for third in swapped:
        first, last = 3 * third, 3 * third + 2
        messages[first], messages[last] = messages[last], messages[first]
    for index in sorted(repeated, reverse=True):
        messages.insert(index + 4, messages[index])
    assert judged_of(messages) == expected
