"""What came of steps that spare hosts did again, on the command line."""

from __future__ import annotations

import json

from tests.unit.cli.test_checkpoint_judging import run, services  # noqa: F401 - a fixture
from tests.unit.cli.test_waits import JOB

from everstep.cli.job_commands import AUDITS_SHOWN
from everstep.cli.output import clock_time

RUNNING = {**JOB, "phase": "running", "waits": None}
WHY = "step 201 of replica 1 came out the second time as the job had it: s1 was wrong"


def audit(number: int) -> dict[str, object]:
    """One finding."""
    return {"step": 200, "number": number, "finding": "spare_named", "why": WHY, "at_ms": 2_000}


def test_newest_audits_of_a_job_are_shown_with_what_they_have_found(services):  # noqa: F811 - a fixture
    """A program gets all of them."""
    audits = [audit(number) for number in range(AUDITS_SHOWN + 2, 0, -1)]
    services.on("GET", "/v1/jobs/j", RUNNING)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    services.on("GET", "/v1/jobs/j/uncopied", {"uncopied": []})
    services.on("GET", "/v1/jobs/j/refused-sources", {"refused_sources": []})
    services.on("GET", "/v1/jobs/j/audits", {"audits": audits})
    shown = " ".join(run("jobs", "show", "j").stdout.split("\n"))
    assert shown.count(f"audit      {clock_time(2_000)} spare named: {WHY}") == AUDITS_SHOWN
    assert json.loads(run("jobs", "show", "j", "--json").stdout)["audits"] == audits


def test_job_without_audits_shows_none(services):  # noqa: F811 - a fixture
    """Nor is a monitor an error that does not know them."""
    services.on("GET", "/v1/jobs/j", RUNNING)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    shown = run("jobs", "show", "j")
    assert (shown.exit_code, "audit  " in shown.stdout) == (0, False)
