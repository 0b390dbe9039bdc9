"""The sum of the ledger's causes, whatever has happened to a job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everstep.monitor.ledger import Cause, Generation, Step, account

TIMES = st.integers(min_value=0, max_value=5_000)
MAYBE = st.none() | TIMES


@given(
    end_ms=TIMES,
    generations=st.lists(
        st.builds(
            Generation,
            generation=st.integers(1, 5),
            cause=st.sampled_from(["launch", "recovery", "restart", "resume", "pause"]),
            begun_at_ms=TIMES,
            short_at_ms=MAYBE,
            placed_at_ms=MAYBE,
            restore_step=st.none() | st.integers(-1, 9),
            running_at_ms=MAYBE,
            failed_at_ms=MAYBE,
            detected_at_ms=MAYBE,
            paused_at_ms=MAYBE,
            ranks=st.integers(0, 9),
        ),
        max_size=5,
        unique_by=lambda g: g.generation,
    ),
    steps=st.lists(
        st.builds(
            Step,
            generation=st.integers(1, 5),
            step=st.integers(1, 9),
            completed_at_ms=TIMES,
            stall_ms=st.integers(0, 300),
            data_wait_ms=st.integers(0, 300),
            shadow_ms=st.integers(0, 300),
            step_time_ms=st.integers(0, 300),
        ),
        max_size=20,
    ),
    ended=st.booleans(),
    full_ranks=st.integers(0, 9),
)
def test_ledger_of_any_history_sums_to_the_wall_time(end_ms, generations, steps, ended, full_ranks):
    """However strange the history, no millisecond is lost or counted twice."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=end_ms,
        generations=generations,
        steps=steps,
        ended=ended,
        full_ranks=full_ranks,
    )
    assert sum(ledger.causes.values()) == ledger.wall_ms == end_ms
    assert all(ms >= 0 for ms in ledger.causes.values())
    assert set(ledger.causes) == set(Cause)
