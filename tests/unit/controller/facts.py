"""A small job and its usual events, for tests of the controller."""

from __future__ import annotations

import json

from everstep.controller.events import (
    GenerationBegun,
    HostsFenced,
    JobRunning,
    JobSubmitted,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
)
from everstep.core.placement import HostPlacement, Layout, Placement

JOB = "demo-1"
SPEC = json.dumps(
    {
        "name": "demo",
        "entry": "everstep.models.pretrain:main",
        "layout": {"pp": 2, "tp": 2},
        "steps": 10,
        "recovery": {"restarts_per_hour_max": 3},
    }
)
LAYOUT = Layout(pp=2, tp=2)


def placement(*hosts: str) -> Placement:
    """Two ranks on each host, in order."""
    return Placement(
        layout=LAYOUT,
        hosts=tuple(
            HostPlacement(host_id=host, ranks=(2 * i, 2 * i + 1), address="127.0.0.1")
            for i, host in enumerate(hosts)
        ),
    )


def begun(generation: int, cause: str, at_ms: int = 0, **fields: object) -> GenerationBegun:
    """A generation of the job."""
    return GenerationBegun(job_id=JOB, generation=generation, cause=cause, at_ms=at_ms, **fields)


SUBMITTED = JobSubmitted(job_id=JOB, name="demo", spec_json=SPEC, at_ms=0)
LAUNCHED = (SUBMITTED, begun(1, "launch"))
PLACED_1 = PlacementDecided(job_id=JOB, generation=1, placement=placement("h0", "h1"))
PLANNED_1 = RestoreDecided(
    job_id=JOB, generation=1, step=-1, rendezvous_address="127.0.0.1", rendezvous_port=2_000
)
STARTED_1 = RanksStarted(job_id=JOB, generation=1, at_ms=0)
RUNNING_1 = JobRunning(job_id=JOB, generation=1, step=1, at_ms=0)
RUNNING = (*LAUNCHED, PLACED_1, PLANNED_1, STARTED_1, RUNNING_1)
FENCED_2 = HostsFenced(job_id=JOB, generation=2, hosts=("h0",))
