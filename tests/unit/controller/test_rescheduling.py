"""What commands about a job's interval mean."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.spec import spec
from tests.unit.controller.facts import (
    JOB,
    PLACED_1,
    PLANNED_1,
    RUNNING,
    RUNNING_1,
    SPEC,
    STARTED_1,
    begun,
)

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import Measured, RecordInForce, SetInterval, WeighInterval
from everstep.controller.events import (
    IntervalChanged,
    IntervalInForce,
    JobStopped,
    JobSubmitted,
    StopRequested,
)
from everstep.controller.policy import MEASURED_HOSTS_MAX, Measure, Reschedule, next_actions
from everstep.controller.starting import start_commands
from everstep.core.placement import HostPlacement
from everstep.core.schedule import Schedule
from everstep.wire.v1.checkpoints_pb2 import RestoreSources

AUTO = JobSubmitted(
    job_id=JOB,
    name="demo",
    spec_json=json.dumps(
        json.loads(SPEC)
        | {
            "checkpoint": {
                "interval": "auto",
                "object_every_steps": 10,
                "failures": {"chip_mtbf_hours": 12.2, "memory_lost_share": 0.02},
            }
        }
    ),
    at_ms=0,
)
AUTO_RUNNING = (AUTO, begun(1, "launch"), PLACED_1, PLANNED_1, STARTED_1, RUNNING_1)
MEASURED = Measured(
    step=40,
    step_us=1_000_000,
    steps_count=30,
    memory_stall_us=1_000_000,
    memory_count=20,
    object_stall_us=2_000_000,
    object_count=2,
    upload_ms=300_000,
    upload_ms_max=300_000,
    upload_count=2,
)
WEIGH = WeighInterval(job_id=JOB, generation=1, measured=MEASURED, at_ms=0)
BY_HAND = SetInterval(job_id=JOB, object_every_steps=7, at_ms=9)
CHANGED_BY_HAND = IntervalChanged(
    job_id=JOB,
    generation=1,
    schedule=Schedule(version=1, memory_every_steps=1, object_every_steps=7),
    auto=False,
    reason="by_request",
    at_ms=9,
)
SEEN = IntervalInForce(job_id=JOB, generation=1, version=1, step=41, at_ms=10)


def after(*events):
    """The job that these events have happened to."""
    return spec(AGGREGATE).given(*events)


def decided(*events) -> IntervalChanged:
    """What weighing leads to."""
    [changed] = after(*events).when(WEIGH).decision.events
    return changed


def test_weighing_decides_the_two_level_optimum_with_its_grounds():
    """Four chips of 12.2 h fail like PEERS' example: 150 s and 1,482 s."""
    changed = decided(*AUTO_RUNNING)
    assert changed.schedule.version == 1
    assert changed.schedule.memory_every_steps == pytest.approx(150, abs=1)
    assert changed.schedule.object_every_steps == pytest.approx(1_482, abs=3)
    assert (changed.auto, changed.reason) == (True, "first_measured")
    assert changed.grounds.mtbf_ms == pytest.approx(10_980_000)
    assert changed.grounds.upload_ms == 300_000
    assert changed.waste_after < changed.waste_before


def test_weighing_again_decides_nothing():
    """Neither while the change is not in force, nor when it is: it is good enough."""
    changed = decided(*AUTO_RUNNING)
    after(*AUTO_RUNNING, changed).when(WEIGH).then()
    after(*AUTO_RUNNING, changed, SEEN).when(WEIGH).then()


def test_change_that_is_not_in_force_yet_is_followed_by_no_other():
    """What is measured until then was made under the schedule before."""
    changed = decided(*AUTO_RUNNING)
    costly = dataclasses.replace(MEASURED, object_stall_us=200_000_000)
    weigh = WeighInterval(job_id=JOB, generation=1, measured=costly, at_ms=0)
    after(*AUTO_RUNNING, changed).when(weigh).then()
    [again] = after(*AUTO_RUNNING, changed, SEEN).when(weigh).decision.events
    assert (again.reason, again.schedule.version) == ("costs", 2)


@pytest.mark.parametrize(
    "command",
    [
        WeighInterval(job_id=JOB, generation=0, measured=MEASURED),
        WeighInterval(job_id=JOB, generation=1, measured=Measured(step=9, step_us=10**6)),
    ],
)
def test_weighing_of_an_older_generation_or_of_few_steps_decides_nothing(command):
    """What it speaks of is fenced off, or not known yet."""
    after(*AUTO_RUNNING).when(command).then()


def test_weighing_while_a_person_has_chosen_or_nothing_trains_decides_nothing():
    """The spec's steps, a person's, and a recovery that comes up."""
    after(*RUNNING).when(WEIGH).then()
    after(*AUTO_RUNNING, CHANGED_BY_HAND, SEEN).when(WEIGH).then()
    weigh = WeighInterval(job_id=JOB, generation=2, measured=MEASURED)
    after(*AUTO_RUNNING, begun(2, "recovery", 5)).when(weigh).then()


def test_failures_of_the_run_move_its_interval():
    """A dozen recoveries in an hour, one of them from the object store."""
    changed = decided(*AUTO_RUNNING)
    events = [*AUTO_RUNNING, changed, SEEN]
    for generation in range(2, 14):
        at_ms = 300_000 * generation
        events += [
            begun(generation, "recovery", at_ms),
            _in(PLACED_1, generation),
            _in(PLANNED_1, generation, step=30, object_store=int(generation == 7)),
            _in(STARTED_1, generation),
            _in(RUNNING_1, generation, at_ms=at_ms + 60_000),
        ]
    weigh = WeighInterval(job_id=JOB, generation=13, measured=MEASURED, at_ms=4_200_000)
    [again] = after(*events).when(weigh).decision.events
    assert again.reason == "failures"
    assert again.grounds.failures_count == 12
    assert (again.grounds.memory_restores_count, again.grounds.object_restores_count) == (11, 1)
    assert again.schedule.object_every_steps < changed.schedule.object_every_steps / 2
    assert again.schedule.memory_every_steps < changed.schedule.memory_every_steps


def _in(event, generation, **fields):
    """The same event of another generation."""
    return dataclasses.replace(event, generation=generation, **fields)


def test_person_sets_steps_and_lets_go_of_them():
    """What is not said stays; auto again begins from there."""
    after(*RUNNING).when(BY_HAND).then(CHANGED_BY_HAND)
    after(*RUNNING, CHANGED_BY_HAND).when(BY_HAND).then()
    let_go = SetInterval(job_id=JOB, auto=True, at_ms=11)
    [changed] = after(*RUNNING, CHANGED_BY_HAND).when(let_go).decision.events
    assert changed.schedule == Schedule(version=2, memory_every_steps=1, object_every_steps=7)
    assert changed.auto


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (SetInterval(job_id=JOB), "nothing to set"),
        (SetInterval(job_id=JOB, auto=True, memory_every_steps=2), "say auto, or steps"),
        (SetInterval(job_id=JOB, memory_every_steps=0), "expected 1 to 1000000000, got 0"),
        (SetInterval(job_id=JOB, memory_every_steps=-3), "got -3"),
        (SetInterval(job_id=JOB, object_every_steps=2**53), "expected 0 (on request only)"),
    ],
)
def test_steps_that_cannot_be_are_refused_with_what_was_expected(command, says):
    """And change nothing."""
    when = after(*RUNNING).when(command)
    when.then_rejected("invalid_interval")
    assert says in when.decision.detail


def test_interval_of_a_job_that_has_ended_is_refused():
    """It takes no more snapshots."""
    over = (
        StopRequested(job_id=JOB, at_ms=1),
        begun(2, "stop"),
        JobStopped(job_id=JOB, generation=2, at_ms=2),
    )
    after(*RUNNING, *over).when(BY_HAND).then_rejected("job_ended")


def test_ranks_that_are_seen_to_follow_end_the_telling():
    """Once, for the newest version only; an older one's step is no news."""
    seen = RecordInForce(job_id=JOB, generation=1, version=1, step=41, at_ms=10)
    after(*RUNNING, CHANGED_BY_HAND).when(seen).then(SEEN)
    after(*RUNNING, CHANGED_BY_HAND, SEEN).when(seen).then()
    after(*RUNNING).when(seen).then()
    stale = RecordInForce(job_id=JOB, generation=0, version=1, step=41, at_ms=10)
    after(*RUNNING, CHANGED_BY_HAND).when(stale).then()


def test_running_job_is_told_until_it_follows_and_listened_to_while_that_matters():
    """A spec's fixed steps need neither; a job that comes up is told by its start."""
    measure = Measure(generation=1, hosts=("h0", "h1"))
    told = Reschedule(generation=1, version=1)
    assert next_actions(after(*RUNNING).state) == ()
    assert next_actions(after(*RUNNING, CHANGED_BY_HAND).state) == (told, measure)
    assert next_actions(after(*RUNNING, CHANGED_BY_HAND, SEEN).state) == ()
    assert next_actions(after(*AUTO_RUNNING).state) == (measure,)
    coming_up = after(*RUNNING, CHANGED_BY_HAND, begun(2, "recovery")).state
    assert not any(isinstance(one, Reschedule | Measure) for one in next_actions(coming_up))


def test_next_generation_is_started_with_the_schedule():
    """Every host's start carries it; the spec's own is not said."""
    events = (*RUNNING, CHANGED_BY_HAND, begun(2, "recovery"), _in(PLACED_1, 2), _in(PLANNED_1, 2))
    sources = {"h0": RestoreSources(), "h1": RestoreSources()}
    commands = start_commands(after(*events).state, sources)
    assert {one.schedule.object_every_steps for one in commands.values()} == {7}
    assert {one.schedule.version for one in commands.values()} == {1}
    plain = start_commands(after(*RUNNING).state, sources)
    assert not any(one.HasField("schedule") for one in plain.values())


def test_large_placement_is_sampled():
    """The first host, and others spread over the stages."""
    hosts = tuple(HostPlacement(host_id=f"h{n}", ranks=(n,)) for n in range(100))
    placed = dataclasses.replace(
        PLACED_1, placement=dataclasses.replace(PLACED_1.placement, hosts=hosts)
    )
    job = after(*AUTO_RUNNING[:2], placed, PLANNED_1, STARTED_1, RUNNING_1).state
    [measure] = next_actions(job)
    assert measure.hosts[0] == "h0"
    assert MEASURED_HOSTS_MAX / 2 < len(measure.hosts) <= MEASURED_HOSTS_MAX
