"""Kills the agent, the registry and the object store at every point of the pipeline, for real.

Each time the one that was killed comes back, and: the interrupted checkpoint becomes complete,
whatever was complete before is read again byte for byte, nothing else calls itself a checkpoint,
and after the sweep nothing is left over.

A point lies before or after one call, or within the second of three parts. What lies between two
calls of one party changes nothing that others can see, so these are all there are.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.checkpoints.lab import KEEP_LAST, PART_BYTES, Lab, open_lab, until

from everstep.wire.v1.checkpoints_pb2 import RestoreSources, Shard

pytestmark = pytest.mark.timeout(900)  # half a minute each when nothing else runs

SPEC = {
    "name": "crash",
    "entry": "fake.py",
    "args": {"bytes": 2 * PART_BYTES + 1_000, "step_ms": 100},  # three parts
    "layout": {"dp_shard": 1},
    "steps": 1_000_000,
    "cwd": ".",
    "checkpoint": {"keep_last": KEEP_LAST, "keep_days": 0},
}
AGENT_POINTS = [
    "before begin_upload",
    "after begin_upload",  # the store has an upload that nobody knows of
    "before put_part 1",
    "within put_part 2",
    "after put_part 3",
    "before complete_upload",
    "after complete_upload",  # the object is there and nobody knows
    "before report",
    "after report",
]
RESUMING_POINTS = [
    ("within put_part 2", "before parts"),
    ("after put_part 3", "after parts"),
    ("after complete_upload", "before list rank-00000.shard"),
    ("after complete_upload", "after list rank-00000.shard"),
]
REGISTRY_POINTS = [
    f"{when} {call}"
    for call in (
        "append shards_stored",
        "chunks",
        "put .metadata",
        "put manifest.json",
        "append checkpoint_completed",
        "append checkpoint_deleted",
        "delete manifest.json",
        "delete .metadata",
        "list folder",
        "delete rank-00000.shard",
        "append checkpoint_purged",
    )
    for when in ("before", "after")
]
SWEEP_POINTS = [
    "after list root",
    "after unfinished_uploads",
    "before delete rank-00001.shard",
    "after delete rank-00001.shard",
    "before abort_upload",
    "after abort_upload",
]
STORE_POINTS = [
    "agent before begin_upload",
    "agent before put_part 1",
    "agent within put_part 2",
    "agent before complete_upload",
    "agent before report",  # read back from a store that is not there
    "registry before chunks",
    "registry before put .metadata",
    "registry before put manifest.json",
    "registry before delete manifest.json",
    "registry before delete .metadata",
    "registry before list folder",
    "registry before delete rank-00000.shard",
]


@pytest.fixture
async def lab(tmp_path, servers, database_url):
    """A run with as many complete checkpoints as are kept: each further one makes one go."""
    async with open_lab(tmp_path, servers, database_url) as lab:
        await lab.begin(1, SPEC)
        step = 0
        for _ in range(KEEP_LAST):
            await lab.save()
            step = await lab.newer_than(step)
        yield lab


async def save_and_reach(lab: Lab, point: str, act) -> int:
    """Save, and act at a point of it; returns the step that was complete before."""
    before = (await lab.complete())[-1]
    lab.gate.set(point, act)
    await lab.save()
    await until(lab.gate.reached.is_set, what=point)
    return before


async def comes_through(lab: Lab, before: int) -> None:
    """See that the interrupted checkpoint becomes complete, and what was complete still is."""
    after = await lab.newer_than(before)
    await lab.check()
    assert await lab.complete() == [before, after]


async def test_agent_killed_at_any_point_goes_on_with_the_checkpoint(lab: Lab):
    """The next agent finds the slot, and what is stored of it already."""

    async def die() -> bool:
        await lab.agent.kill()
        return False

    for points in [(point,) for point in AGENT_POINTS] + RESUMING_POINTS:
        await lab.steps_on()
        before = await save_and_reach(lab, f"agent {points[0]}", die)
        for point in points[1:]:
            lab.gate.set(f"agent {point}", die)
            await lab.agent.start()
            await until(lab.gate.reached.is_set, what=point)
        await lab.agent.start()
        await comes_through(lab, before)
    await lab.swept()
    await restores(lab)


async def restores(lab: Lab) -> None:
    """The newest checkpoint is loaded by a generation that has nothing else."""
    step = (await lab.complete())[-1]
    [shard] = (await lab.get(f"/v1/checkpoints/{lab.job_id}/{step}"))["shards"]
    await lab.stop(2)
    sources = RestoreSources(shards=[Shard(**shard)])
    await lab.begin(2, SPEC, restores={"restore_step": step, "sources": sources})
    [ready] = lab.ready(2)
    assert (ready.restored_step, ready.source_kind) == (step, "object_store")


async def test_registry_killed_at_any_point_goes_on_with_the_checkpoint(lab: Lab):
    """The next registry finds in its events what is left to do: to complete one, to remove one."""

    async def die() -> bool:
        await lab.registry.kill()
        return False

    for point in REGISTRY_POINTS:
        before = await save_and_reach(lab, f"registry {point}", die)
        await lab.registry.start()
        await comes_through(lab, before)
    await lab.swept()


async def test_registry_killed_at_any_point_of_a_sweep_leaves_nothing(lab: Lab, tmp_path):
    """What belongs to nothing is gone in the end, and nothing else is."""

    async def die() -> bool:
        await lab.registry.kill()
        return False

    file = tmp_path / "part"
    file.write_bytes(b"x")
    key = f"jobs/{lab.job_id}/step-00000001/gen-0/rank-00001.shard"
    kept = await lab.complete()
    for point in SWEEP_POINTS:
        await lab.objects.put(key, b"late")
        upload = await lab.objects.begin_upload(key)
        await lab.objects.put_part(upload, 1, str(file), size_bytes=1, offset=0)
        lab.gate.set(f"registry {point}", die)
        await until(lab.gate.reached.is_set, what=point)
        await lab.registry.start()
        await lab.swept()
        await lab.check()
        assert await lab.complete() == kept


async def test_object_store_killed_at_any_point_comes_back_and_all_goes_on(lab: Lab):
    """Calls meet a server that is gone, or go down with it; they are made again."""
    store = lab.servers.s3

    async def kill_it() -> bool:
        await store.kill()
        return True

    for point in STORE_POINTS:
        await lab.steps_on()
        try:
            before = await save_and_reach(lab, point, kill_it)
        finally:
            await asyncio.shield(store.start() if not store.is_alive() else asyncio.sleep(0))
        await comes_through(lab, before)
    await lab.swept()
