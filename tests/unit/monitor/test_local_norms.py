"""A gradient that stands out among replicas asks for a recompute, once in a while."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.placement import Layout
from everstep.faults.chance import seeded
from everstep.monitor.detectors.local_norms import (
    AGAIN_STEPS,
    LATE_STEPS,
    WINDOW_STEPS_MIN,
    NormCourse,
    Suspicion,
)
from everstep.wire.v1.agents_pb2 import Checked, RankStep

LAYOUT = Layout(pp=2, dp_shard=4)  # ranks 0 to 3 and, with other sizes, 4 to 7


NONE: dict[int, tuple[int, float]] = {}


def run(
    steps: int, *, odd: dict[int, tuple[int, float]] = NONE, silent: int = -1, seed: int = 1
) -> list[Suspicion]:
    """Steps of ranks whose norms scatter by 10 %; ``odd``: by step, a rank and its factor."""
    chance = seeded(f"norms {seed}")
    course = NormCourse(1, LAYOUT)
    found: list[Suspicion] = []
    for step in range(1, steps + 1):
        for rank in range(LAYOUT.world_size):
            norm = (5.0 if rank >= 4 else 1.0) * math.exp(chance.gauss(0, 0.1))
            if step in odd and odd[step][0] == rank:
                norm *= odd[step][1]
            told = RankStep(rank=rank, step=step, checked=Checked(local_norm=norm))
            if rank != silent:
                found += course.told(1, [told])
    return found


def test_rank_far_off_its_replicas_is_suspected():
    """Another stage has other sizes, and is not compared; too small is as odd as too large."""
    for factor in (5.0, 0.1):
        (found,) = run(60, odd={50: (6, factor)})
        assert (found.rank, found.step) == (6, 50)
        assert "rank 6" in found.reason


def test_scatter_of_samples_is_no_suspicion():
    """Neither is somewhat more."""
    assert run(400) == []
    assert run(60, odd={50: (6, 1.3)}) == []


def test_first_steps_are_only_watched():
    """What is usual is not known yet."""
    assert run(WINDOW_STEPS_MIN, odd={WINDOW_STEPS_MIN: (1, 9.0)}) == []


def test_rank_that_stands_out_for_ever_is_suspected_now_and_then():
    """A recompute costs a step."""
    odd = dict.fromkeys(range(30, 30 + 2 * AGAIN_STEPS), (2, 9.0))
    found = run(30 + 2 * AGAIN_STEPS, odd=odd)
    assert [(one.rank, one.step) for one in found] == [(2, 30), (2, 30 + AGAIN_STEPS)]


def test_lost_messages_and_norms_that_are_no_numbers_stop_nothing():
    """The others are compared a little later; jobs that tell no norms have nothing to compare."""
    (found,) = run(60, odd={50: (6, 5.0)}, silent=7)
    assert (found.rank, found.step) == (6, 50)
    course = NormCourse(1, LAYOUT)
    assert course.told(1, [RankStep(rank=0, step=1)]) == []
    assert run(60, odd={50: (6, math.nan), 51: (5, math.inf)}) == []
    assert LATE_STEPS < WINDOW_STEPS_MIN


@given(st.integers(0, 1_000), st.integers(0, 7), st.floats(4.0, 1e6))
@settings(deadline=None, max_examples=25)
def test_only_the_odd_one_is_ever_suspected(seed, rank, factor):
    """Whatever its size and the others' scatter."""
    assert {one.rank for one in run(40, odd={30: (rank, factor)}, seed=seed)} == {rank}
