from hypothesis import given
from hypothesis import strategies as st

from everstep.local.restarts import (
    DELAY_MS_MAX,
    FRUITLESS_STARTS_MAX,
    LIVED_MS,
    Deaths,
    after_death,
    restart_delay_ms,
)


def delays_of(deaths_of_ms: list[int], *, was_ready: bool) -> list[int]:
    """Return the delay after each death of a process that lived so long."""
    deaths, delays = Deaths(), []
    for lived_ms in deaths_of_ms:
        deaths = after_death(deaths, lived_ms=lived_ms, was_ready=was_ready)
        delays.append(restart_delay_ms(deaths))
    return delays


def test_first_death_restarts_at_once_and_later_ones_back_off():
    """Training waits for a single death; a process that cannot live must not eat the machine."""
    assert delays_of([100] * 8, was_ready=True) == [
        0, 500, 1_000, 2_000, 4_000, 8_000, DELAY_MS_MAX, DELAY_MS_MAX,
    ]  # fmt: skip


def test_death_after_a_long_life_restarts_at_once():
    """A process that has lived for a while starts with a clean record."""
    assert delays_of([100, 100, LIVED_MS, 100], was_ready=True) == [0, 500, 0, 500]


def test_process_that_never_gets_ready_is_hopeless_after_three_starts():
    """Whoever waits for it is told, instead of waiting forever."""
    deaths = Deaths()
    for _ in range(FRUITLESS_STARTS_MAX):
        assert not deaths.hopeless
        deaths = after_death(deaths, lived_ms=100, was_ready=False)
    assert deaths.hopeless


def test_process_that_was_ready_once_is_not_hopeless():
    """A process that has worked may work again."""
    deaths = Deaths()
    for was_ready in (False, False, True, False, False):
        deaths = after_death(deaths, lived_ms=100, was_ready=was_ready)
    assert not deaths.hopeless


@given(st.lists(st.tuples(st.integers(0, 10**9), st.booleans()), max_size=60))
def test_any_history_keeps_the_delay_within_its_bounds(history):
    """No sequence of deaths makes the delay negative or longer than its limit."""
    deaths = Deaths()
    for lived_ms, was_ready in history:
        deaths = after_death(deaths, lived_ms=lived_ms, was_ready=was_ready)
        assert 0 <= restart_delay_ms(deaths) <= DELAY_MS_MAX
