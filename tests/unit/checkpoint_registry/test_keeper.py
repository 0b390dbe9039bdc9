"""The registry's process manager on in-memory adapters, killed at every point."""

from __future__ import annotations

import json
import logging

import pytest
from tests.unit.checkpoint_registry.keeping import LAYOUT, Clock, KilledError, World, slot_of
from tests.unit.checkpoint_registry.words import report

from everstep.checkpoint_registry.catalog import CheckpointId, MemoryCatalog
from everstep.checkpoint_registry.codec import (
    checkpoint_stream,
)
from everstep.checkpoint_registry.commands import NoteJob
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.state import Phase
from everstep.objectstore.memory import MemoryObjects


@pytest.fixture
def world() -> World:
    """Nothing has happened."""
    return World()


WHOLE = [".metadata", "manifest.json", "rank-00000.shard", "rank-00001.shard"]
SLOT = slot_of(1, 20)
DONE = ["shards_stored.v2", "checkpoint_completed.v1"]


async def test_reported_checkpoint_is_read_back_and_completed(world):
    """The manifest names what was read back; then it is complete."""
    await world.histories().handle(NoteJob(job_id="job", keep_last=3, layout=LAYOUT, at_ms=1))
    await world.upload(20)
    await world.keeper().carry_on()
    assert await world.events(20) == DONE
    assert await world.keys(20) == WHOLE
    key = "jobs/job/step-00000020/gen-1/manifest.json"
    manifest = json.loads(await world.objects.get(key))
    assert (manifest["step"], manifest["world_size"], manifest["layout"]["tp"]) == (20, 2, 2)


async def test_half_a_checkpoint_is_left_alone(world):
    """Nothing is read before every rank has reported."""
    await world.handler().handle(report(0))
    world.objects.away = True
    await world.keeper().carry_on()
    assert await world.phase(20) is Phase.COLLECTING


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"bad_rank": 1}, f"expected {len(SLOT)} bytes, got 6"),
        ({"absent_rank": 1}, f"expected {len(SLOT)} bytes, got no object"),
    ],
)
async def test_bad_object_is_refused_by_name_and_nothing_is_completed(world, fault, why):
    """The event says which object, what was expected and what was found."""
    await world.upload(20, **fault)
    await world.keeper().carry_on()
    assert await world.phase(20) is Phase.COLLECTING
    *_, last = await world.store.load(checkpoint_stream("job", 1, 20))
    assert last.type == "shards_refused.v1"
    assert last.data["uri"] == "jobs/job/step-00000020/gen-1/rank-00001.shard"
    assert last.data["why"] == why
    assert "manifest.json" not in await world.keys(20)


async def test_object_with_the_right_size_and_other_bytes_is_refused(world):
    """A flipped bit is found by the checksum."""
    await world.upload(20)
    key = "jobs/job/step-00000020/gen-1/rank-00000.shard"
    await world.objects.put(key, SLOT[:-1] + b"?")
    await world.keeper().carry_on()
    *_, last = await world.store.load(checkpoint_stream("job", 1, 20))
    assert last.type == "shards_refused.v1"
    assert last.data["why"].startswith("expected xxh3-128 ")


async def test_shard_uploaded_again_completes_the_checkpoint(world):
    """A refusal is not the end."""
    keeper = world.keeper()
    await world.upload(20, bad_rank=1)
    await keeper.carry_on()
    await world.upload(20)
    await keeper.carry_on()
    assert await world.phase(20) is Phase.COMPLETE


async def test_object_store_that_is_away_delays_and_refuses_nothing(world, caplog):
    """An outage says nothing about the objects, and is logged once."""
    await world.upload(20)
    world.objects.away = True
    keeper = world.keeper()
    with caplog.at_level(logging.WARNING):
        await keeper.carry_on()
        await keeper.carry_on()
    assert await world.phase(20) is Phase.STORED
    assert len(caplog.records) == 1
    world.objects.away = False
    await keeper.carry_on()
    assert await world.phase(20) is Phase.COMPLETE


async def test_only_the_last_few_checkpoints_are_kept(world):
    """The oldest goes when a fourth is complete, objects and all."""
    keeper = world.keeper()
    for step in (10, 20, 30, 40):
        await world.upload(step)
        await keeper.carry_on()
    assert [await world.phase(step) for step in (10, 20, 30, 40)] == [
        Phase.PURGED,
        Phase.COMPLETE,
        Phase.COMPLETE,
        Phase.COMPLETE,
    ]
    assert await world.keys(10) == []
    assert await world.keys(20) == WHOLE


async def test_manifest_goes_before_the_shards(world):
    """Whoever finds the manifest finds the shards."""
    await world.upload(20)
    keeper = world.keeper()
    await keeper.carry_on()
    await keeper.delete(CheckpointId(job_id="job", step=20, generation=1), "dropped")
    for calls, left in ((1, [WHOLE[0], *WHOLE[2:]]), (2, WHOLE[2:])):
        world.objects.calls_left = calls
        with pytest.raises(KilledError):
            await world.keeper().carry_on()
        assert await world.keys(20) == left


async def test_checkpoint_deleted_while_it_is_read_back_leaves_no_manifest(world):
    """The slower of two registries does not resurrect what the other has purged."""
    await world.upload(20)
    slow = world.keeper()

    class Overtaken(MemoryObjects):
        async def put(self, key, data):
            await world.objects.put(key, data)
            which = CheckpointId(job_id="job", step=20, generation=1)
            await world.keeper().delete(which, "dropped")
            await world.keeper().carry_on()
            await world.objects.put(key, data)

        def chunks(self, key, *, chunk_bytes):
            return world.objects.chunks(key, chunk_bytes=chunk_bytes)

        async def delete(self, key):
            await world.objects.delete(key)

    slow = CheckpointKeeper(world.handler(), world.histories(), world.catalog, Overtaken(), Clock())
    await slow.carry_on()
    assert await world.phase(20) is Phase.PURGED
    assert await world.keys(20) == []


async def test_two_registries_at_once_do_harmless_work_twice(world):
    """Both read back and write; one event says that it is complete."""
    await world.upload(20)
    one, two = world.keeper(), world.keeper()
    unfinished = await world.catalog.unfinished()
    await one.carry_on()

    class Behind(MemoryCatalog):
        async def unfinished(self):
            return unfinished

        async def job_ids(self):
            return []

    two = CheckpointKeeper(world.handler(), world.histories(), Behind(), world.objects, Clock())
    await two.carry_on()
    assert await world.events(20) == DONE
    assert await world.keys(20) == WHOLE


async def kill_everywhere(prepare, arm):
    """Kill a registry at its first, second, ... call; each time a new one carries on."""
    for calls in range(100):
        world = World()
        await prepare(world)
        arm(world, calls)
        try:
            await world.keeper().carry_on()
        except* KilledError:
            died = True
        else:
            died = False
        world.objects.calls_left = world.store.appends_left = None
        await world.keeper().carry_on()
        yield world
        if not died:
            return
    pytest.fail("the registry never came to an end")


def objects_die(world, calls):
    """Die before a call to the object store."""
    world.objects.calls_left = calls


def appends_die(world, calls):
    """Die before an append."""
    world.store.appends_left = calls


def appends_die_after(world, calls):
    """Die right after an append, before its caller knows."""
    world.store.appends_left, world.store.after = calls, True


@pytest.mark.parametrize("arm", [objects_die, appends_die, appends_die_after])
async def test_registry_killed_anywhere_carries_on_from_the_state_alone(arm):
    """One to complete, one to refuse, and one to give up: all end as if nothing had happened."""

    async def prepare(world):
        for step in (10, 20, 30):
            await world.upload(step)
            await world.keeper().carry_on()
        await world.upload(40)
        await world.upload(50, bad_rank=0)

    worlds = 0
    async for world in kill_everywhere(prepare, arm):
        worlds += 1
        phases = [await world.phase(step) for step in (10, 20, 30, 40, 50)]
        assert phases == [
            Phase.PURGED,
            Phase.COMPLETE,
            Phase.COMPLETE,
            Phase.COMPLETE,
            Phase.COLLECTING,
        ]
        assert await world.keys(10) == []
        assert await world.keys(40) == WHOLE
        assert (await world.events(40)) == DONE
        assert (await world.events(50)).count("shards_refused.v1") == 1
    assert worlds > 3


async def test_objects_are_described_for_torch_before_the_manifest_says_that_they_are_whole(world):
    """A manifest beside which torch finds nothing would promise too much."""
    order: list[str] = []
    put = world.objects.put

    async def noting(key, data):
        order.append(key.rpartition("/")[2])
        await put(key, data)

    world.objects.put = noting
    await world.upload(20)
    await world.keeper().carry_on()
    assert order == [".metadata", "manifest.json"]


async def test_checkpoint_that_torch_could_not_read_is_one_of_ours_all_the_same(world, caplog):
    """Two tensors of one name are a matter of the user's names; the restore does not need them."""
    await world.upload(20, wholes=(4, 6))
    await world.keeper().carry_on()
    assert await world.keys(20) == WHOLE[1:]
    assert "two tensors have one name" in caplog.text
