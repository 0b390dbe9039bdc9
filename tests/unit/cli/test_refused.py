"""Planned sources of a restore that could not be used, on the command line."""

from __future__ import annotations

import json

from tests.unit.cli.test_checkpoint_judging import run, services  # noqa: F401 - a fixture
from tests.unit.cli.test_waits import JOB

from everstep.cli.job_commands import REFUSED_SHOWN

RECOVERY = {
    "generation": 2,
    "cause": "recovery",
    "lost_hosts": [],
    "replacements": [],
    "restore_step": 47,
    "sources": {"own_memory": 8},
    "stages_ms": {},
    "running_at_ms": 9_000,
}
REFUSED = {
    "generation": 2,
    "rank": 0,
    "step": 47,
    "kind": "own_memory",
    "host_id": "h1",
    "uri": "",
    "detail": "checksum of model.w: expected 1, got 2",
}


def shown(services, refused) -> str:  # noqa: F811 - a fixture
    """What ``jobs show`` prints."""
    job = {**JOB, "phase": "running", "waits": None, "recoveries": [RECOVERY]}
    services.on("GET", "/v1/jobs/j", job)
    services.on("GET", "/v1/jobs/j/metrics", {"points": []})
    services.on("GET", "/v1/jobs/j/uncopied", {"uncopied": []})
    services.on("GET", "/v1/jobs/j/refused-sources", {"refused_sources": refused})
    done = run("jobs", "show", "j")
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_source_that_was_not_used_is_named_under_its_recovery(services):  # noqa: F811 - a fixture
    """The plan's counts alone would say that all came from there; older ones are not repeated."""
    told = shown(services, [{**REFUSED, "generation": 1, "rank": 5}, REFUSED])
    assert (
        "from step 47 (8 own_memory) rank 0 could not use step 47 from own memory (h1): "
        "checksum of model.w: expected 1, got 2"
    ) in told
    assert "rank 5" not in told
    found = json.loads(run("jobs", "show", "j", "--json").stdout)["refused_sources"]
    assert [one["rank"] for one in found] == [5, 0]


def test_many_sources_that_were_not_used_are_counted(services):  # noqa: F811 - a fixture
    """Only some of them are named."""
    told = shown(services, [REFUSED] * (REFUSED_SHOWN + 2))
    assert told.count("could not use") == REFUSED_SHOWN
    assert "and 2 more sources" in told
