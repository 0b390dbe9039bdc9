import random

import pytest

from everstep.planner.statistics import estimate, quantile, student_t


@pytest.mark.parametrize(
    ("confidence", "freedom", "t"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.99, 9, 3.250),
        (0.95, 29, 2.045),
        (0.90, 30, 1.697),
        (0.95, 1000, 1.962),
        (0.99, 100_000, 2.576),
    ],
)
def test_student_t_of_tabulated_points_is_tabulated(confidence, freedom, t):
    """Odd, even and large degrees of freedom, to the tables' three digits."""
    assert student_t(confidence, freedom) == pytest.approx(t, abs=2.1e-3)


def test_interval_of_a_mean_holds_the_truth_as_often_as_it_says():
    """Of 2,000 intervals from five normal values, 95 % hold the mean; a normal quantile: 88 %."""
    rng = random.Random(1)
    held = 0
    for _ in range(2_000):
        one = estimate([rng.gauss(3, 2) for _ in range(5)])
        held += one.low <= 3 <= one.high
    assert held / 2_000 == pytest.approx(0.95, abs=0.015)


def test_quantile_is_the_smallest_value_that_suffices():
    """An observed value, never one in between."""
    ordered = list(range(1, 11))
    assert [quantile(ordered, share) for share in (0, 0.05, 0.5, 0.9, 0.91, 1)] == [
        1, 1, 5, 9, 10, 10,
    ]  # fmt: skip
