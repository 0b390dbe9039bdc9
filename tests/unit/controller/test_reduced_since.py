"""Since when a job has fewer ranks than it should, read off its generations."""

from __future__ import annotations

import pytest

from everstep.controller.queries import reduced_since


@pytest.mark.parametrize(
    ("ranks", "since_ms"),
    [
        ([8], None),
        ([8, 4], 200),
        ([8, 4, 4], 200),
        ([8, 4, 2], 200),
        ([8, 4, 8], None),
        ([8, 4, 8, 4], 400),
        ([8, 4, 0], 200),  # not placed again yet
        ([0], None),
    ],
)
def test_job_is_reduced_since_the_first_generation_of_a_row(ranks, since_ms):
    """One that is whole in between ends it."""
    recoveries = [
        {"generation": number, "ranks": count, "begun_at_ms": 100 * number}
        for number, count in enumerate(ranks, start=1)
    ]
    assert reduced_since(recoveries, 8) == since_ms
