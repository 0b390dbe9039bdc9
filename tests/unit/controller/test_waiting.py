"""What a job that is not running yet waits for, read off its events."""

from __future__ import annotations

import asyncio

import pytest
from tests.spec import spec
from tests.unit.controller.facts import (
    FENCED_2,
    JOB,
    LAUNCHED,
    PLACED_1,
    PLANNED_1,
    RUNNING,
    STARTED_1,
    begun,
    placement,
)
from tests.unit.controller.test_runner import LAUNCH, FakeFleet, controller, until

from everstep.controller.codec import AGGREGATE
from everstep.controller.events import (
    HostsShort,
    JobFailed,
    PauseRequested,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
)
from everstep.controller.waiting import Awaited, Sources, Stage, Trouble, Waits, waits
from everstep.core.errors import Unavailable
from everstep.core.system import SystemClock
from everstep.eventstore.memory import MemoryStore

JOBS = spec(AGGREGATE)
LOST = begun(2, "recovery", lost_hosts=("h1",), incident_id="i1")
PLACED_2 = PlacementDecided(job_id=JOB, generation=2, placement=placement("h0", "h2"))
PLANNED_2 = RestoreDecided(job_id=JOB, generation=2, step=7, own_memory=2, object_store=2)
STARTED_2 = RanksStarted(job_id=JOB, generation=2, at_ms=0)
TIMES = {
    "begun_at_ms": 10,
    "fenced_at_ms": 20,
    "placed_at_ms": 30,
    "short_at_ms": 15,
    "planned_at_ms": 40,
    "started_at_ms": 50,
}


def told(*events, troubles=None, sources=None, times=None):
    """What is waited for after a run and these events."""
    state = JOBS.given(*RUNNING, *events).state
    return waits(state, TIMES if times is None else times, sources or Sources(), troubles or {})


@pytest.mark.parametrize(
    ("events", "stage", "since_ms", "awaited", "why"),
    [
        ((), Stage.FENCE, 10, Awaited.HOSTS, "h0 to end the ranks of the generation before"),
        ((FENCED_2,), Stage.PLACE, 10, Awaited.INVENTORY, "the inventory to give it hosts"),
        (
            (FENCED_2, HostsShort(job_id=JOB, generation=2, missing=1, at_ms=15)),
            Stage.PLACE, 15, Awaited.SPARE, "1 more host: add, start or uncordon some",
        ),
        (
            (FENCED_2, PLACED_2),
            Stage.PLAN, 30, Awaited.REGISTRY, "the registry to say which step it goes on from",
        ),
        (
            (FENCED_2, PLACED_2, PLANNED_2),
            Stage.START, 40, Awaited.HOSTS, "h0, h2 to start their ranks",
        ),
        (
            (FENCED_2, PLACED_2, PLANNED_2, STARTED_2),
            Stage.FIRST_STEP, 50, Awaited.RANKS,
            "the ranks to load step 7 and to make their first step",
        ),
    ],
)  # fmt: skip
def test_each_stage_of_a_recovery_names_whom_it_waits_for(events, stage, since_ms, awaited, why):
    """Since the event before it."""
    assert told(LOST, *events) == Waits(stage=stage, since_ms=since_ms, awaited=awaited, why=why)


def test_ranks_that_load_from_the_object_store_may_wait_for_it():
    """Only they know whether it answers; it is the likeliest to keep them."""
    sources = Sources(own_memory=2, object_store=2)
    found = told(LOST, FENCED_2, PLACED_2, PLANNED_2, STARTED_2, sources=sources)
    assert found.awaited is Awaited.OBJECT_STORE
    assert found.why == (
        "the ranks to load step 7 (2 from own memory, 2 from the object store) and to make their "
        "first step; a store that does not answer is asked again"
    )


def test_launch_waits_too_and_a_pause_for_a_last_common_step():
    """The same stages."""
    launched = JOBS.given(*LAUNCHED, PLACED_1, PLANNED_1, STARTED_1).state
    assert waits(launched, {}, Sources(), {}).why == "the ranks to make their first step"
    paused = told(PauseRequested(job_id=JOB, at_ms=1), begun(2, "pause"))
    assert (
        paused.why == "h0, h1 to end the ranks of the generation before, after a last common step"
    )
    stopped = told(begun(2, "stop"))
    assert stopped.why == paused.why + " that is stored when an earlier upload is over"


def test_job_that_runs_or_has_ended_waits_for_nothing():
    """There is nothing to say."""
    assert told() is None
    assert told(LOST, JobFailed(job_id=JOB, generation=2, why="x")) is None


def test_what_the_newest_try_came_to_is_told_if_it_is_of_this_stage_and_generation():
    """Another stage's, or an older generation's, would mislead."""
    trouble = Trouble(action="plan", generation=2, why="all is suspect", since_ms=35)
    found = told(LOST, FENCED_2, PLACED_2, troubles={"plan": trouble})
    assert (found.trouble, found.trouble_since_ms) == ("all is suspect", 35)
    assert told(LOST, FENCED_2, troubles={"plan": trouble}).trouble == ""
    old = Trouble(action="plan", generation=1, why="all is suspect", since_ms=35)
    assert told(LOST, FENCED_2, PLACED_2, troubles={"plan": old}).trouble == ""


async def test_runner_remembers_why_it_tries_again_until_it_has_worked():
    """With the time of the first try."""
    store = MemoryStore(clock=SystemClock())
    away = True

    class Away(FakeFleet):
        async def plan(self, job, holdings, from_step):
            if away:
                raise Unavailable("the registry says that all is suspect")
            return await super().plan(job, holdings, from_step)

    fleet = Away()
    runner = controller(store, fleet)
    await runner.apply(LAUNCH)
    async with asyncio.timeout(20):
        while "plan" not in runner.troubles.of(JOB):
            await asyncio.sleep(0)
    first = runner.troubles.of(JOB)["plan"]
    assert (first.generation, first.why) == (1, "the registry says that all is suspect")
    away = False
    await until(store, lambda job: job.started)
    assert runner.troubles.of(JOB) == {}
    await runner.close()
