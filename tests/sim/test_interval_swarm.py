"""Random faults around jobs whose interval changes while they run."""

from __future__ import annotations

from functools import partial

import pytest

from everstep.sim import jobs
from everstep.sim.interval_stories import BELIEF
from everstep.sim.stage import spec_of
from everstep.sim.swarm import run_seed

SEEDS = 8  # forty were clean once; each is a second or two


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed_with_automatic_intervals_ends_well(seed, monkeypatch):
    """All ranks of every step under one schedule, none older than before, whatever breaks."""
    monkeypatch.setattr(jobs, "spec_of", partial(spec_of, interval="auto", failures=BELIEF))
    assert run_seed(seed).wrong == ()
