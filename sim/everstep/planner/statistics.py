"""The little statistics that a plan needs: a mean with its interval, and empirical quantiles.

The standard library has no Student t distribution, and scipy is a heavy guest for one number: for
whole degrees of freedom its distribution function is a finite sum, which bisection inverts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
FREEDOM_NORMAL: Final = 1_000  # from here on the normal quantile is right to three digits
BISECTIONS: Final = 80  # halves 2^40 down to the last bit of a float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean of independent runs; the true mean lies in low to high with 95 % confidence."""

    mean: float
    low: float
    high: float
    runs: int

    @property
    def margin(self) -> float:
        """Half the interval's width."""
        return (self.high - self.low) / 2


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return the mean of independent, about normal values, with Student's interval.

    Args:
        values: at least two.
        confidence: that the interval holds the true mean, 0 to 1.
    """
    mean = statistics.fmean(values)
    count = len(values)
    margin = student_t(confidence, count - 1) * statistics.stdev(values) / math.sqrt(count)
    return Estimate(mean=mean, low=mean - margin, high=mean + margin, runs=count)


def student_t(confidence: float, freedom: int) -> float:
    """Return t with ``P(|T| <= t) = confidence`` for whole degrees of freedom."""
    if freedom >= FREEDOM_NORMAL:
        return statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, 2.0**40
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return high


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that at least ``share`` of them do not exceed."""
    rank = math.ceil(share * len(ordered) - 1e-9)  # 0.9 x 10 is a hair above 9
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def _within(t: float, freedom: int) -> float:
    """Return ``P(|T| <= t)``. Source: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for i in range(2 + odd, freedom, 2):
        term *= (i - 1) / i * cosine * cosine
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
