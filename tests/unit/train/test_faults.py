"""Faults as values, and how they reach a rank."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.errors import InvalidInput
from everstep.train.faults import (
    VARIABLE,
    How,
    Slow,
    as_environment,
    at,
    injector,
    read_faults,
)


def test_fault_reads_as_it_is_said():
    """Where first, then what."""
    fault = at(rank=3, step=10).slow(percent=8)
    assert fault == Slow(rank=3, step=10, percent=8, how=How.COMPUTE, steps=0, host="")


def test_faults_come_back_from_the_environment_as_they_went():
    """They travel in a job's spec."""
    faults = (
        at(rank=3, step=10).slow(percent=8),
        at(rank=0, step=0, host="h2").slow(percent=50.5, how=How.SLEEP, steps=7),
    )
    assert read_faults(as_environment(*faults)) == faults


def test_what_people_write_by_hand_is_understood():
    """Defaults may be left out."""
    text = '[{"type": "slow", "rank": 3, "step": 10, "percent": 8}]'
    assert read_faults({VARIABLE: text}) == (at(rank=3, step=10).slow(percent=8),)


@pytest.mark.parametrize(
    "text",
    [
        "slow",
        "{}",
        '[{"type": "fast", "rank": 3, "step": 10}]',
        '[{"type": "slow", "rank": 3, "step": 10}]',
        '[{"type": "slow", "rank": 3, "step": 10, "percent": 8, "how": "walk"}]',
        '[{"type": "slow", "rank": 3, "step": 10, "percent": 8, "until": 12}]',
    ],
)
def test_what_is_no_fault_is_refused_by_the_variables_name(text):
    """A fault that is misspelt must not be a test that finds nothing."""
    with pytest.raises(InvalidInput, match=VARIABLE):
        read_faults({VARIABLE: text})


def test_rank_without_faults_has_no_injector():
    """Nothing is asked in a step then."""
    faults = as_environment(at(rank=3, step=10, host="h1").slow(percent=8))
    assert injector({}, 3) is None
    assert injector({**faults, "EVERSTEP_HOST_ID": "h1"}, 2) is None
    assert injector({**faults, "EVERSTEP_HOST_ID": "h2"}, 3) is None
    assert injector({**faults, "EVERSTEP_HOST_ID": "h1"}, 3) is not None


@given(st.integers(0, 50), st.integers(0, 20), st.integers(0, 100))
def test_fault_lasts_for_as_many_steps_as_it_says(begin, count, step):
    """None means to the end."""
    fault = at(rank=0, step=begin).slow(percent=8, steps=count)
    assert fault.is_on(step) == (step >= begin and (count == 0 or step - begin < count))
