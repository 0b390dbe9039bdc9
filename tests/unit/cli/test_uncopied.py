"""Who keeps no copies of whose ranks, on the command line."""

from __future__ import annotations

import json

from tests.unit.cli.test_checkpoint_judging import run, services  # noqa: F401 - a fixture
from tests.unit.cli.test_waits import JOB

from everstep.cli.job_commands import UNCOPIED_SHOWN
from everstep.cli.output import clock_time

WHY = "peer 10.0.0.2:9: no room for rank-0: it needs 9 more bytes, 1 are free"
NONE = {"host_id": "h1", "ranks": [0, 1], "peer_host_id": "h2", "why": WHY, "since_ms": 2_000}
RUNNING = {**JOB, "phase": "running", "waits": None}


def test_host_that_keeps_no_copies_is_named_with_its_reason(services):  # noqa: F811 - a fixture
    """And what a loss would cost; a program gets all of it."""
    services.on("GET", "/v1/jobs/j", RUNNING)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    services.on("GET", "/v1/jobs/j/goodput", {"wall_ms": 5, "causes": {"useful": 5}})
    services.on("GET", "/v1/jobs/j/uncopied", {"uncopied": [NONE]})
    assert (
        f"copies     h2 keeps none of h1's ranks 0-1 since {clock_time(2_000)}: {WHY}; "
        "if h1 is lost, the job goes back to its newest checkpoint"
    ) in " ".join(run("jobs", "show", "j").stdout.split("\n"))
    assert json.loads(run("jobs", "show", "j", "--json").stdout)["uncopied"] == [NONE]


def test_many_hosts_without_copies_are_counted(services):  # noqa: F811 - a fixture
    """Only some of them are named."""
    services.on("GET", "/v1/jobs/j", RUNNING)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    services.on("GET", "/v1/jobs/j/uncopied", {"uncopied": [NONE] * (UNCOPIED_SHOWN + 2)})
    shown = run("jobs", "show", "j").stdout
    assert shown.count("keeps none of") == UNCOPIED_SHOWN
    assert "and 2 more hosts have none" in shown


def test_monitor_that_knows_nothing_of_copies_is_no_error(services):  # noqa: F811 - a fixture
    """One that is away, or older; what it has told of goodput is shown all the same."""
    services.on("GET", "/v1/jobs/j", RUNNING)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    services.on("GET", "/v1/jobs/j/goodput", {"wall_ms": 5, "causes": {"useful": 5}})
    shown = run("jobs", "show", "j")
    assert (shown.exit_code, "useful" in shown.stdout) == (0, True)
    assert "copies  " not in shown.stdout
