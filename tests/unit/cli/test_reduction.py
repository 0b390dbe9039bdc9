"""What people are told of a job that runs with fewer ranks."""

from __future__ import annotations

from everstep.cli.live import ranks_of, reduction

JOB = {"world_size": 8, "ranks": 8, "ended_at_ms": None, "reduced_since_ms": None}
SMALL = {**JOB, "ranks": 4, "reduced_since_ms": 1_000}


def test_whole_job_is_told_by_its_ranks_alone():
    """As is one that nobody has placed yet, or that an older controller tells of."""
    assert (ranks_of(JOB), reduction(JOB)) == ("8", "")
    assert ranks_of({**JOB, "ranks": 0}) == "8"
    assert ranks_of({"world_size": 8, "ended_at_ms": None}) == "8"


def test_small_job_is_told_by_how_many_it_has_and_since_when():
    """Until it has ended: then it is over how many it had."""
    assert ranks_of(SMALL) == "4 of 8"
    assert reduction(SMALL).startswith("running with 4 of 8 ranks since ")
    assert reduction({**SMALL, "ended_at_ms": 2_000}) == ""
