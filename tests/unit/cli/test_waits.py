"""What people are told of a job that waits."""

from __future__ import annotations

from tests.unit.cli.test_checkpoint_judging import run, services  # noqa: F401 - a fixture

from everstep.cli.job_commands import waits_line

WAITS = {
    "stage": "first_step",
    "since_ms": 1_000,
    "awaited": "object_store",
    "why": "the ranks to load step 7",
    "trouble": "",
    "trouble_since_ms": None,
}
JOB = {
    "job_id": "j",
    "name": "demo",
    "phase": "recovering",
    "generation": 2,
    "step": 7,
    "steps": 60,
    "layout": {"tp": 2},
    "world_size": 2,
    "ranks": 2,
    "submitted_at_ms": 0,
    "ended_at_ms": None,
    "reduced_since_ms": None,
    "detail": "",
    "placement": None,
    "recoveries": [],
    "waits": {**WAITS, "stage": "plan", "trouble": "all is suspect", "trouble_since_ms": 2_000},
}


def test_stage_since_when_and_for_how_long_are_told():
    """In one line."""
    line = waits_line(WAITS, now_ms=11_000)
    assert line.startswith("for the ranks to load step 7 (stage first step, since ")
    assert line.endswith(", 10.0 s)")


def test_job_that_waits_says_what_for_and_why_still(services):  # noqa: F811 - a fixture
    """The job's own lines."""
    services.on("GET", "/v1/jobs/j", JOB)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    shown = run("jobs", "show", "j").stdout
    assert "waits      for the ranks to load step 7 (stage plan, since " in shown
    assert ": all is suspect" in shown
    services.on("GET", "/v1/jobs/j", {**JOB, "waits": None})
    assert "waits" not in run("jobs", "show", "j").stdout
