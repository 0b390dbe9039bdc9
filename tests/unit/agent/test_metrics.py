"""When a host's steps leave."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everstep.agent.metrics import GATHER_MS_MAX, STEPS_MAX, RankStep, StepGatherer

RANKS = frozenset({3, 5})


def step(rank, number, *, first=False):
    """A rank's step."""
    return RankStep(rank=rank, step=number, step_time_ms=10.0, first=first)


def gatherer():
    """For two ranks of a run of 100 steps."""
    return StepGatherer(RANKS, 100)


def test_step_leaves_when_all_ranks_have_told_it():
    """One message holds all local ranks, in order."""
    steps = gatherer()
    assert steps.add(step(5, 7), 0) == []
    assert steps.add(step(3, 7), 1) == [(step(3, 7), step(5, 7))]
    assert steps.flush() == []


def test_step_of_a_silent_rank_leaves_after_a_while():
    """A rank that hangs does not hide the others."""
    steps = gatherer()
    steps.add(step(3, 7), 1_000)
    assert steps.due(1_000 + GATHER_MS_MAX - 1) == []
    assert steps.due(1_000 + GATHER_MS_MAX) == [(step(3, 7),)]
    assert steps.due(10_000) == []


def test_first_and_last_step_leave_at_once():
    """Recovery is timed by the first; the last has no successor."""
    steps = gatherer()
    assert steps.add(step(3, 41, first=True), 0) == [(step(3, 41, first=True),)]
    assert steps.add(step(5, 41, first=True), 0) == [(step(5, 41, first=True),)]
    assert steps.add(step(3, 100), 0) == [(step(3, 100),)]


def test_older_steps_leave_before_a_newer_one():
    """Whoever reads the messages sees steps in order, even when the last overtakes."""
    steps = gatherer()
    assert steps.add(step(3, 99), 0) == []
    assert steps.add(step(3, 100), 0) == [(step(3, 99),), (step(3, 100),)]


def test_flush_sends_in_order_of_steps():
    """What is left at the end of a generation leaves, oldest first."""
    steps = gatherer()
    steps.add(step(5, 8), 0)
    steps.add(step(3, 7), 0)
    assert steps.flush() == [(step(3, 7),), (step(5, 8),)]


def test_memory_is_bounded():
    """A rank that runs ahead alone pushes the oldest step out."""
    steps = gatherer()
    sent = [message for n in range(1, STEPS_MAX + 3) for message in steps.add(step(3, n), 0)]
    assert sent == [(step(3, 1),), (step(3, 2),)]


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(RANKS)), st.integers(1, 100), st.integers(0, 50)),
        unique_by=lambda item: item[:2],
        max_size=60,
    )
)
def test_every_told_step_leaves_exactly_once(told):
    """In whatever order and however late ranks tell, nothing is lost and nothing sent twice."""
    steps, now, sent = gatherer(), 0, []
    for rank, number, pause_ms in told:
        now += pause_ms
        sent += steps.add(step(rank, number), now)
        sent += steps.due(now)
    sent += steps.flush()
    flat = [(one.rank, one.step) for message in sent for one in message]
    assert sorted(flat) == sorted((rank, number) for rank, number, _ in told)
