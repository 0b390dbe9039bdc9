"""How often ranks snapshot may change while they run, and changes for all of them at one step."""

import json

import pytest

pytestmark = pytest.mark.torch


def told(rank, *keys: str) -> list[tuple]:
    """Return what a rank said of each step."""
    return [tuple(one[key] for key in keys) for one in rank.steps]


def durable_steps(rank) -> list[int]:
    """Return the steps at which a rank took a durable snapshot."""
    return [one["step"] for one in rank.steps if one["durable"]]


def test_schedule_told_to_the_first_rank_changes_all_at_one_step(make_world, make_spec):
    """The other rank hears nothing; an older schedule that comes late changes nothing."""
    world = make_world("live", make_spec({"dp_shard": 2}, steps=400))
    world.start()
    world.until_step(3)
    assert durable_steps(world.ranks[0]) == []
    world.tell_schedule([0], version=2, memory_every_steps=2, object_every_steps=3)
    world.until(lambda: world.ranks[0].steps[-1]["schedule_version"] == 2)
    world.tell_schedule([0], version=1, memory_every_steps=1, object_every_steps=1)
    changed = next(one["step"] for one in world.ranks[0].steps if one["schedule_version"] == 2)
    world.until_step(changed + 8)
    first, second = (told(rank, "step", "schedule_version", "durable") for rank in world.ranks)
    common = min(len(first), len(second))
    assert first[:common] == second[:common]
    assert {version for step, version, _ in first if step >= changed} == {2}
    assert {version for step, version, _ in first if step < changed} == {0}
    saved = [step for step in durable_steps(world.ranks[0]) if step < changed + 8]
    assert saved == [step for step in range(changed, changed + 8) if step % 3 == 0]
    kept = [one["step"] for one in world.ranks[0].steps if one["snapshot_slot"] >= 0]
    assert [step for step in kept if step > changed] == [
        one["step"] for one in world.ranks[0].steps if one["step"] > changed and not one["step"] % 2
    ]


def test_ranks_that_heard_of_different_schedules_still_change_alike(make_world, make_spec):
    """A late rank knows less and another one more than the first: the first one's holds."""
    world = make_world("odd", make_spec({"dp_shard": 2}, steps=400))
    world.start()
    world.until_step(2)
    world.tell_schedule([1], version=9, memory_every_steps=5, object_every_steps=1)
    last = world.ranks[0].step
    world.until_step(last + 3)
    world.tell_schedule([0], version=4, memory_every_steps=1, object_every_steps=2)
    world.until(lambda: world.ranks[0].steps[-1]["schedule_version"] == 4)
    world.until_step(world.ranks[0].step + 4)
    first, second = (told(rank, "step", "schedule_version", "durable") for rank in world.ranks)
    common = min(len(first), len(second))
    assert first[:common] == second[:common]
    assert {version for _, version, _ in first} == {0, 4}


def test_generation_begins_with_the_schedule_that_it_is_started_with(make_world, make_spec):
    """Its first step is made under it already."""
    spec = make_spec({"dp_shard": 2}, steps=7)
    world = make_world("again", spec)
    schedule = {"version": 5, "memory_every_steps": 1, "object_every_steps": 2}
    world.start(env={"EVERSTEP_SCHEDULE": json.dumps(schedule)})
    world.finish()
    for rank in world.ranks:
        assert {one["schedule_version"] for one in rank.steps} == {5}
        assert durable_steps(rank) == [2, 4, 6, 7]
