"""Recorded production runs, judged; ``data/README.md`` says where the figures come from."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

from everstep.monitor.detectors.straggler import Limits
from everstep.planner.recorded_steps import RecordedSteps, judgements

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> RecordedSteps:
    """Return a run as it was recorded."""
    own: dict[int, dict[int, float]] = {}
    stages: dict[int, str] = {}
    with (DATA / name).open() as file:
        for row in csv.DictReader(file):
            stages[int(row["rank"])] = row["stage"]
            own.setdefault(int(row["step"]), {})[int(row["rank"])] = float(row["own"])
    return RecordedSteps(stages=stages, own=own)


def plain_ratios(run: RecordedSteps) -> dict[int, float]:
    """Return each rank's median over steps of its time over the median of its whole stage."""
    found = {}
    for rank, stage in run.stages.items():
        peers = [one for one in run.stages if run.stages[one] == stage]
        ratios = [own[rank] / median(own[one] for one in peers) for own in run.own.values()]
        found[rank] = median(ratios)
    return found


def test_slow_worker_of_a_production_run_is_named_alone():
    """It takes more than twice as long as its peers, all through the run."""
    judged = list(judgements(recorded("trace_ar.csv"), Limits()))
    assert all(one.doubts == () for one in judged)
    for one in judged:
        (finding,) = one.findings
        assert (finding.host_id, finding.ranks) == ("worker-0", (0,))
        assert finding.ratio == pytest.approx(2.36, abs=0.02)
        assert finding.next_ratio < 1.01


def test_production_run_with_unequal_stages_has_no_straggler():
    """Its last stage has 1.63 times the work of the others, and nobody is to blame."""
    run = recorded("trace_st.csv")
    for judged in judgements(run, Limits()):
        assert (judged.findings, judged.doubts) == ((), ())
        assert max(judged.ratios[rank] for rank in run.stages) < 1.015


@pytest.mark.parametrize(
    ("name", "highest", "next_highest"), [("trace_ar.csv", 2.35, 1.003), ("trace_st.csv", 1.004, 1)]
)
def test_sample_gives_the_published_ratios(name, highest, next_highest):
    """Derived again in another way: over the median of the whole stage, the rank itself in it."""
    first, second = sorted(plain_ratios(recorded(name)).values(), reverse=True)[:2]
    assert first == pytest.approx(highest, abs=0.006)
    assert second == pytest.approx(next_highest, abs=0.004)


def test_window_that_is_too_short_for_its_parts_has_shorter_ones():
    """A dozen steps are judged by windows of single steps."""
    run = recorded("trace_ar.csv")
    short = RecordedSteps(stages=run.stages, own=dict(list(run.own.items())[:12]))
    judged = list(judgements(short, Limits()))
    assert [one.last_step for one in judged] == list(short.own)[7:]
    assert {found.ranks for one in judged for found in one.findings} == {(0,)}
