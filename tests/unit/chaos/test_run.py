"""A campaign's run where the monitor cannot say what came of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from everstep.chaos import run
from everstep.chaos.campaign import Campaign
from everstep.chaos.deadline import Deadline
from everstep.chaos.run import Performance
from everstep.core.errors import NotFoundError


class Ticking:
    """A clock on which each look takes a second."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> int:
        return int(self.ms)

    def monotonic_ms(self) -> float:
        self.ms += 1_000
        return self.ms


class Unheard:
    """The services, of which the monitor has not heard of a job that has failed already."""

    def job(self, job_id: str) -> dict:
        return {"job_id": job_id, "phase": "failed"}

    def metrics(self, job_id: str, **_: int) -> list:
        raise NotFoundError(f"the monitor knows no job {job_id!r}")

    def goodput(self, job_id: str) -> dict:
        raise NotFoundError(f"the monitor knows no job {job_id!r}")

    def incidents(self, job_id: str) -> list:
        return []


@pytest.fixture
def clock(monkeypatch) -> Ticking:
    """A clock that also the pauses between looks go by."""
    monkeypatch.setattr(run.time, "sleep", lambda _: None)
    return Ticking()


def test_job_that_the_monitor_never_hears_of_ends_its_campaign(clock, tmp_path):
    """It had failed at its launch: the report says that nothing is known of what followed."""
    hand = SimpleNamespace(client=Unheard(), job_id="j", clock=clock, heal=lambda: None)
    performance = Performance(
        hand,
        Campaign(name="none", seed=1, faults=()),
        tmp_path,
        say=lambda _: None,
        deadline=Deadline.after(clock, 3_600),
    )
    found = performance.run()
    assert found.job["phase"] == "failed"
    assert found.problems == ["the monitor knows no job 'j'"]
