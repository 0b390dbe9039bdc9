"""A job that runs with fewer ranks: what it waits for, how it grows, whom it still asks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import spec
from tests.unit.controller.facts import JOB, SUBMITTED, begun

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    BeginGrow,
    RecordFinished,
    RecordPlan,
    RecoverJob,
    Verdict,
)
from everstep.controller.correcting import corrections_of
from everstep.controller.events import (
    HostsFenced,
    JobRunning,
    JobSucceeded,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
)
from everstep.controller.policy import AwaitRoom, Fence, Forget, Place, next_actions
from everstep.controller.starting import (
    SourceCounts,
    source_counts,
    sources_by_host,
    start_commands,
)
from everstep.controller.state import evolve
from everstep.core.corrections import NO_CORRECTIONS, BatchSpan, Corrections
from everstep.core.elastic import smaller_layouts
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.spec import parse_spec_json
from everstep.wire.codec import from_wire
from everstep.wire.v1.checkpoints_pb2 import Holder, RestoreSources, Shard
from everstep.wire.v1.common_pb2 import Layout as WireLayout

FULL, HALF = Layout(dp_shard=4), Layout(dp_shard=2)
SPEC = json.dumps(
    {
        "name": "demo",
        "entry": "everstep.models.pretrain:main",
        "layout": {"dp_shard": 4},
        "steps": 10,
        "recovery": {"no_spare": "elastic"},
    }
)
JOBS = spec(AGGREGATE)


def placed(generation: int, layout: Layout, *hosts: str) -> PlacementDecided:
    """One rank on each host."""
    seats = tuple(HostPlacement(host_id=host, ranks=(i,)) for i, host in enumerate(hosts))
    placement = Placement(layout=layout, hosts=seats)
    return PlacementDecided(job_id=JOB, generation=generation, placement=placement)


def going(generation: int, step: int, cause: str, where: PlacementDecided, **begin: object):
    """The events of a generation that steps on from ``step``."""
    named = {"job_id": JOB, "generation": generation}
    return (
        begun(generation, cause, **begin),
        *((HostsFenced(**named, hosts=()),) if generation > 1 else ()),
        where,
        RestoreDecided(**named, step=step),
        RanksStarted(**named, at_ms=0),
        JobRunning(**named, step=step + 1, at_ms=0),
    )


WHOLE = (
    replace(SUBMITTED, spec_json=SPEC),
    *going(1, -1, "launch", placed(1, FULL, "a", "b", "c", "d")),
)
SMALL = (*WHOLE, *going(2, 7, "recovery", placed(2, HALF, "b", "c"), lost_hosts=("a",)))
GROW = BeginGrow(job_id=JOB, generation=2, at_ms=90)
ROOM = AwaitRoom(generation=2, layouts=(FULL, Layout(dp_shard=3)))


def test_whole_job_waits_for_nothing():
    """And a grow that comes late begins nothing."""
    assert next_actions(JOBS.given(*WHOLE).state) == ()
    JOBS.given(*WHOLE).when(replace(GROW, generation=1)).then()


def test_small_job_waits_for_room_and_grows():
    """It asks for all first, and stops after a common step when there is room."""
    assert next_actions(JOBS.given(*SMALL).state) == (ROOM,)
    JOBS.given(*SMALL).when(GROW).then(begun(3, "grow", 90))
    grown = JOBS.given(*SMALL, begun(3, "grow", 90)).state
    assert grown.phase == "recovering"
    assert next_actions(grown) == (
        Fence(generation=3, hosts=("b", "c"), graceful=True),
        Place(generation=3, lost_hosts=()),
    )


def test_grow_comes_once():
    """Its generation is over by then."""
    JOBS.given(*SMALL, begun(3, "grow", 90)).when(GROW).then()


def test_growing_is_no_recovery():
    """It costs nothing of the restart budget."""
    assert len(JOBS.given(*SMALL).state.recoveries) == 1
    assert len(JOBS.given(*SMALL, begun(3, "grow", 90)).state.recoveries) == 1


def test_host_lost_while_it_grows_is_a_recovery():
    """As any other failure on the way up."""
    lost = RecoverJob(
        job_id=JOB, generation=3, incident_id="i", verdict=Verdict.REPLACE, hosts=("b",), at_ms=95
    )
    [event] = JOBS.given(*SMALL, begun(3, "grow", 90)).when(lost).decision.events
    assert (event.generation, event.cause, event.lost_hosts) == (4, "recovery", ("b",))


def test_run_that_finishes_while_it_grows_has_succeeded():
    """All ranks were through when they were asked to stop."""
    done = RecordFinished(job_id=JOB, generation=2, step=10, at_ms=95)
    [event] = JOBS.given(*SMALL, begun(3, "grow", 90)).when(done).decision.events
    assert isinstance(event, JobSucceeded)


TOO_SMALL = RecoverJob(
    job_id=JOB,
    generation=2,
    incident_id="i",
    verdict=Verdict.REPLACE,
    hosts=("b",),
    kind="host_too_small",
    reason="2 ranks need 9 GB, and 8 are there",
    at_ms=95,
)


def test_few_groups_that_do_not_fit_are_not_tried_again():
    """The host is sound: nobody is lost, and the job goes on with more groups or waits."""
    [event] = JOBS.given(*SMALL).when(TOO_SMALL).decision.events
    assert (event.cause, event.lost_hosts, event.dp_min) == ("recovery", (), 3)
    assert "9 GB" in event.remark
    job = JOBS.given(*SMALL, event).state
    assert job.dp_min == 3
    spec_ = parse_spec_json(SPEC)
    assert smaller_layouts(spec_, job.dp_min) == (Layout(dp_shard=3),)
    assert JOBS.given(*SMALL, event, begun(4, "recovery")).state.dp_min == 3
    assert JOBS.given(*SMALL, event, begun(4, "restart")).state.dp_min == 0


def test_host_that_is_too_small_for_the_whole_job_is_replaced():
    """As before: another one may be larger."""
    [event] = JOBS.given(*WHOLE).when(replace(TOO_SMALL, generation=1)).decision.events
    assert (event.lost_hosts, event.dp_min) == (("b",), 0)


def test_hosts_that_are_left_are_asked_until_their_state_is_old():
    """They may hold the only copy of what the job goes on from."""
    job = JOBS.given(*SMALL).state
    assert (job.leftovers, job.leftovers_step) == (("d",), 7)
    again = JOBS.given(
        *SMALL, begun(3, "recovery", lost_hosts=("b",)), placed(3, Layout(), "c")
    ).state
    assert again.leftovers == ("d",)  # b is lost, c serves
    planned = RestoreDecided(job_id=JOB, generation=3, step=7)
    assert evolve(again, planned).leftovers == ("d",)
    assert evolve(evolve(again, planned), replace(planned, step=9)).leftovers == ()


def test_hosts_that_serve_again_are_no_longer_left():
    """A job that has grown back asks nobody else."""
    grown = JOBS.given(*SMALL, begun(3, "grow"), placed(3, FULL, "b", "c", "d", "e")).state
    assert grown.leftovers == ()


def test_job_that_is_over_is_forgotten_where_it_was_left_too():
    """Their memory is free again."""
    over = JobSucceeded(job_id=JOB, generation=2, step=10, at_ms=99)
    job = JOBS.given(*SMALL, over).state
    assert next_actions(job) == (Forget(generation=3, hosts=("b", "c", "d")),)


OLD = WireLayout(pp=1, dp_replicate=1, dp_shard=4, tp=1)
SOURCES = RestoreSources(
    holders=[
        Holder(host_id="b", generation=1, own=[1], replicas=[0]),
        Holder(host_id="c", generation=1, own=[2]),
    ],
    shards=[Shard(rank=rank, uri=f"u{rank}") for rank in range(4)],
    shards_generation=1,
    old_layout=OLD,
    lost=[],
)


def test_each_host_is_told_the_old_ranks_that_its_ranks_need():
    """And the layout that they ran under."""
    placement = placed(2, HALF, "b", "c").placement
    parts = sources_by_host(placement, SOURCES)
    assert [shard.rank for shard in parts["b"].shards] == [0, 1]
    assert [shard.rank for shard in parts["c"].shards] == [1, 2, 3]
    assert [list(one.own) for one in parts["c"].holders] == [[1], [2]]
    assert parts["b"].old_layout == parts["c"].old_layout == OLD
    counts = SourceCounts(own_memory=1, peer_memory=0, object_store=1)
    assert source_counts(placement, SOURCES) == counts


def test_ranks_are_told_the_spec_of_what_they_are():
    """Their layout is the placement's."""
    job = JOBS.given(*SMALL).state
    command = start_commands(job, sources_by_host(job.placement, SOURCES))["b"]
    assert parse_spec_json(command.spec_json).layout.dp_shard == 2
    assert command.layout.dp_shard == 2
    whole = JOBS.given(*WHOLE).state
    parts = sources_by_host(whole.placement, RestoreSources())
    assert start_commands(whole, parts)["a"].spec_json == SPEC


def scaling(events):
    """The same job with a batch that scales."""
    document = json.loads(SPEC)
    document["recovery"]["elastic_batch"] = "scale"
    document["data"] = {"path": "c", "sequence_tokens": 8, "global_batch": 16, "micro_batch": 2}
    return JOBS.given(replace(events[0], spec_json=json.dumps(document)), *events[1:]).state


def test_smaller_batch_and_rate_are_told_from_where_they_begin():
    """And where they ended, at every later start."""
    assert corrections_of(scaling(WHOLE)) == NO_CORRECTIONS
    assert corrections_of(JOBS.given(*SMALL).state) == NO_CORRECTIONS  # it keeps its batch
    small = corrections_of(scaling(SMALL))
    sizes = (BatchSpan(after_step=0, samples=16), BatchSpan(after_step=7, samples=8))
    assert small.batches == sizes
    [rate] = small.rates
    assert (rate.after_step, rate.factor) == (7, math.sqrt(0.5))
    assert (small.rate_at(7), small.rate_at(8)) == (1.0, math.sqrt(0.5))
    grown = (*SMALL, *going(3, 20, "grow", placed(3, FULL, "b", "c", "d", "e")))
    whole = corrections_of(scaling(grown))
    assert whole.batches == (*sizes, BatchSpan(after_step=20, samples=16))
    assert (whole.rate_at(20), whole.rate_at(21)) == (math.sqrt(0.5), 1.0)
    told = start_commands(scaling(SMALL), {"b": RestoreSources()})["b"]
    assert from_wire(told.corrections, Corrections) == small
    assert parse_spec_json(told.spec_json).data.global_batch == 8


def test_span_that_was_gone_back_behind_is_forgotten():
    """What is made again is made by whoever is there now."""
    back = (*SMALL, *going(3, 5, "restart", placed(3, FULL, "b", "c", "d", "e")))
    assert scaling(back).groups == ((0, 4),)
    assert corrections_of(scaling(back)) == NO_CORRECTIONS


@pytest.mark.parametrize("phase", ["fenced", "placed", "planned", "started"])
def test_nothing_of_the_growth_waits_for_room_again_before_it_runs(phase):
    """A generation that comes up is left alone."""
    events = going(3, 8, "grow", placed(3, Layout(dp_shard=3), "b", "c", "d"))
    count = ["fenced", "placed", "planned", "started"].index(phase) + 2
    actions = next_actions(JOBS.given(*SMALL, *events[:count]).state)
    assert not any(isinstance(one, AwaitRoom) for one in actions)
    running = next_actions(JOBS.given(*SMALL, *events).state)
    assert running == (AwaitRoom(generation=3, layouts=(FULL,)),)


@given(
    commands=st.lists(
        st.sampled_from(
            [
                GROW,
                replace(GROW, generation=3),
                RecordFinished(job_id=JOB, generation=2, step=10, at_ms=95),
                RecordPlan(job_id=JOB, generation=3, step=8),
                RecoverJob(
                    job_id=JOB,
                    generation=3,
                    incident_id="i",
                    verdict=Verdict.REPLACE,
                    hosts=("c",),
                    at_ms=96,
                ),
            ]
        ),
        max_size=6,
    )
)
def test_every_command_may_come_twice(commands):
    """What was decided once is not decided again."""
    job = JOBS.given(*SMALL)
    for command in commands:
        decision = job.when(command).decision
        job = job.given(*getattr(decision, "events", ()))
        again = job.when(command).decision
        assert not getattr(again, "events", ()), (command, again)
