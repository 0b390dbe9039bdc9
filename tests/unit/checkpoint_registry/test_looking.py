"""A step's objects are looked at before somebody goes back to it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.checkpoint_registry.keeping import Clock, Objects, said, slot_of
from tests.unit.checkpoint_registry.words import facts, shard

from everstep.checkpoint_registry import looking
from everstep.checkpoint_registry.commands import Known
from everstep.checkpoint_registry.looking import Looks
from everstep.checkpoint_registry.reading import look_at
from everstep.checkpoint_registry.state import History
from everstep.core.errors import Unavailable
from everstep.wire.v1 import checkpoints_pb2 as wire

FOLDER = "jobs/job/step-00000020/gen-1/"


class Stuck(Objects):
    """Answers what it has, and reads nothing of rank 1."""

    async def chunks(self, key, *, chunk_bytes):
        if key == shard(1).uri:
            await asyncio.Event().wait()
        async for chunk in super().chunks(key, chunk_bytes=chunk_bytes):
            yield chunk


class Told:
    """The registry's judgements: remembers what was decided."""

    def __init__(self) -> None:
        self.commands = []

    async def decide(self, command):
        self.commands.append(command)


class Catalog:
    """Two checkpoints, of steps 10 and 20."""

    def __init__(self, shards) -> None:
        self.shards = shards

    async def known(self, job_id):
        return [Known(step=step, generation=1, complete=True) for step in (10, 20)]

    async def complete(self, job_id):
        return tuple(
            type(facts(20))(step=step, generation=1, shards=self.shards) for step in (10, 20)
        )


async def stored(objects: Objects):
    """Put both ranks' objects there; return the shards."""
    shards = []
    for rank in (0, 1):
        data = slot_of(rank, 20)
        shards.append(said(shard(rank), data))
        await objects.put(shard(rank).uri, data)
    return tuple(shards)


async def asked(objects: Objects, shards, *, step: int = 20):
    """Ask about a step; return the answer and what the registry noted."""

    async def history_of(_):
        return History()

    told = Told()
    looks = Looks(history_of, Catalog(shards), objects, told, Clock())
    return await looks.check_step(wire.CheckStep(job_id="job", step=step)), told.commands


async def test_whole_checkpoint_may_be_gone_back_to_and_it_is_said_what_was_looked_at():
    """Sizes and checksums of all."""
    objects = Objects()
    reply, noted = await asked(objects, await stored(objects))
    assert reply.outcome.accepted
    assert reply.checked == (
        "step 20: all 2 objects are there with the right size; all were read, and their checksums "
        "are right"
    )
    assert noted == []


async def test_time_that_runs_out_is_said(monkeypatch):
    """Sizes are known of all; what was not read is not called right."""
    monkeypatch.setattr(looking, "READ_S_MAX", 0.05)
    objects = Stuck()
    reply, noted = await asked(objects, await stored(objects))
    assert reply.outcome.accepted
    assert reply.checked.endswith(
        "1 were read, and their checksums are right; for the others there was no time"
    )
    assert noted == []


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
async def test_damaged_step_is_refused_and_noted(damage):
    """By what a list tells, or by its checksum; the steps that are left are named."""
    objects = Objects()
    shards = await stored(objects)
    data = slot_of(1, 20)
    words = {
        "gone": "rank 1: there is no such object",
        "cut": f"rank 1: expected {len(data)} bytes, got {len(data) - 1}",
        "flipped": "rank 1: expected xxh3-128 ",
    }
    match damage:
        case "gone":
            await objects.delete(shards[1].uri)
        case "cut":
            await objects.put(shards[1].uri, data[:-1])
        case _:
            await objects.put(shards[1].uri, data[:-1] + bytes([data[-1] ^ 1]))
    reply, [noted] = await asked(objects, shards)
    assert (reply.outcome.accepted, reply.outcome.why) == (False, "damaged")
    assert words[damage] in reply.outcome.detail
    assert reply.outcome.detail.endswith("steps that may be restored: 10")
    assert (noted.bad_ranks, noted.whole, noted.by) == ((1,), False, "the registry")


async def test_store_that_is_away_is_no_damage():
    """Nothing is begun, and nothing noted."""
    objects = Objects()
    shards = await stored(objects)
    objects.away = True
    reply, noted = await asked(objects, shards)
    assert reply.outcome.why == "object_store_away"
    assert "nothing was begun: the object store is away" in reply.outcome.detail
    assert noted == []


async def test_store_that_goes_away_while_it_is_read_is_no_damage():
    """The list came, the objects did not."""
    objects = Objects()
    shards = await stored(objects)
    list_of = objects.list

    async def listed(prefix):
        found = await list_of(prefix)
        objects.away = True
        return found

    objects.list = listed
    with pytest.raises(Unavailable, match="the object store is away"):
        await look_at(objects, FOLDER, shards, read_s_max=5.0)


async def test_step_that_is_not_there_names_those_that_are():
    """Whatever lies in the store."""
    reply, _ = await asked(Objects(), (), step=30)
    assert reply.outcome.why == "no_such_step"
    assert reply.outcome.detail.endswith("there are: 10, 20")
