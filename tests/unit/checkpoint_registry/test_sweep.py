"""What belongs to nothing, when it goes, and what is never touched."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.checkpoint_registry.keeping import Clock, KilledError, World
from tests.unit.checkpoint_registry.words import report

from everstep.checkpoint_registry.catalog import CheckpointId
from everstep.checkpoint_registry.commands import NoteGeneration
from everstep.checkpoint_registry.events import Shard
from everstep.checkpoint_registry.state import Checkpoint, History, Phase
from everstep.checkpoint_registry.sweep import (
    Content,
    Folder,
    Orphans,
    Sweep,
    SweepTimes,
    Why,
    due,
    folders_of,
    in_order,
    judge,
)
from everstep.core.errors import NotFoundError
from everstep.core.ports import PartialUpload

TIMES = SweepTimes(every_s=1, grace_s=10, idle_s=100)
FOLDER = Folder(job_id="job", step=20, generation=1)
LATER = Folder(job_id="job", step=30, generation=1)
PREFIX = "jobs/job/step-00000020/gen-1/"
UPLOAD = PartialUpload(key=PREFIX + "rank-00001.shard", upload_id="u")
CONTENT = Content(keys=(PREFIX + "rank-00000.shard",), uploads=(UPLOAD,))
SHARD = Shard(rank=0, uri=PREFIX + "rank-00000.shard", bytes=1, checksum="c")


def checkpoint(**fields) -> Checkpoint:
    """A checkpoint of two ranks, one of which has reported."""
    return replace(
        Checkpoint(job_id="job", step=20, generation=1, world_size=2, shards={0: SHARD}), **fields
    )


UNKNOWN = Checkpoint()
COLLECTING = checkpoint()
STORED = checkpoint(world_size=1)
COMPLETE = checkpoint(world_size=1, manifest_uri="m")
DELETED = checkpoint(deleted="retention")
PURGED = checkpoint(deleted="retention", purged=True)


def judged(one: Checkpoint, *, newest: int = 1, later: Checkpoint | None = None, content=CONTENT):
    """Judge the folder beside a later one of its generation."""
    known = {FOLDER: one} | ({LATER: later} if later is not None else {})
    return judge(FOLDER, content, History(newest_generation=newest), known)


@pytest.mark.parametrize("one", [UNKNOWN, COLLECTING])
def test_incomplete_of_an_older_generation_is_over(one: Checkpoint) -> None:
    """Reports of it are refused: it can never become complete."""
    assert judged(one, newest=2) == Orphans(folder=FOLDER, why=Why.OVER, content=CONTENT)


@pytest.mark.parametrize("one", [UNKNOWN, COLLECTING])
@pytest.mark.parametrize("later", [COMPLETE, replace(COMPLETE, deleted="retention", purged=True)])
def test_incomplete_before_a_complete_one_of_its_generation_is_overtaken(
    one: Checkpoint, later: Checkpoint
) -> None:
    """Every rank has filled its durable slot again since, even if that one has gone meanwhile."""
    orphans = judged(one, later=later)
    assert orphans == Orphans(folder=FOLDER, why=Why.OVERTAKEN, content=CONTENT)


@pytest.mark.parametrize("one", [UNKNOWN, COLLECTING])
@pytest.mark.parametrize("later", [None, UNKNOWN, COLLECTING, STORED])
def test_incomplete_of_the_running_generation_may_only_be_idle(
    one: Checkpoint, later: Checkpoint | None
) -> None:
    """It may still be on its way."""
    assert judged(one, later=later) == Orphans(folder=FOLDER, why=Why.IDLE, content=CONTENT)


@pytest.mark.parametrize("newest", [1, 2])
@pytest.mark.parametrize("one", [STORED, DELETED])
def test_what_the_keeper_is_at_is_left_to_it(one: Checkpoint, newest: int) -> None:
    """Of any generation: it was reported in time."""
    assert judged(one, newest=newest) is None


@pytest.mark.parametrize("newest", [1, 2])
def test_of_a_complete_checkpoint_only_uploads_may_go(newest: int) -> None:
    """All its shards were read back: nobody needs another upload of one."""
    stored = Orphans(folder=FOLDER, why=Why.STORED, content=Content(uploads=(UPLOAD,)))
    assert judged(COMPLETE, newest=newest) == stored
    assert judged(COMPLETE, newest=newest, content=Content(keys=CONTENT.keys)) is None


def test_what_comes_after_the_purge_goes() -> None:
    """A late writer's object, or a slow registry's manifest."""
    assert judged(PURGED) == Orphans(folder=FOLDER, why=Why.DELETED, content=CONTENT)


def test_unknown_job_is_left_alone() -> None:
    """Another registry may own it, or this one has lost its database."""
    assert judged(UNKNOWN, newest=0) is None


def test_generation_that_is_not_heard_of_yet_is_left_alone() -> None:
    """Events come when they come."""
    folder = replace(FOLDER, generation=3)
    assert judge(folder, CONTENT, History(newest_generation=2), {folder: UNKNOWN}) is None


def test_manifest_of_an_unknown_checkpoint_is_left_alone() -> None:
    """Somebody has read all of it back; a database that was restored may not know."""
    content = Content(keys=(PREFIX + "manifest.json", *CONTENT.keys))
    assert judged(UNKNOWN, newest=2, content=content) is None
    assert judged(COLLECTING, newest=2, content=content) is not None


ORPHANS = Orphans(folder=FOLDER, why=Why.OVER, content=CONTENT)
IDLE = replace(ORPHANS, why=Why.IDLE)


def test_orphan_goes_after_its_grace() -> None:
    """The first look never removes anything."""
    gone, since = due([ORPHANS, IDLE], {}, at_ms=5, times=TIMES)
    assert (gone, since) == ((), {ORPHANS: 5, IDLE: 5})
    assert due([ORPHANS, IDLE], since, at_ms=10_004, times=TIMES)[0] == ()
    assert due([ORPHANS, IDLE], since, at_ms=10_005, times=TIMES)[0] == (ORPHANS,)
    assert due([IDLE], since, at_ms=100_005, times=TIMES)[0] == (IDLE,)


def test_orphan_that_was_none_for_a_look_begins_anew() -> None:
    """So does one of which the folder has changed: somebody is at it."""
    _, since = due([ORPHANS], {}, at_ms=0, times=TIMES)
    _, since = due([], since, at_ms=5_000, times=TIMES)
    gone, since = due([ORPHANS], since, at_ms=10_000, times=TIMES)
    assert (gone, since) == ((), {ORPHANS: 10_000})
    grown = replace(IDLE, content=replace(CONTENT, part_counts=(7,)))
    _, since = due([IDLE], {}, at_ms=0, times=TIMES)
    assert due([grown], since, at_ms=100_000, times=TIMES)[0] == ()


def test_only_what_has_the_form_of_ours_is_looked_at() -> None:
    """A bucket may hold other things, even under the same first folder."""
    others = ["jobs/readme", "jobs/j/step-x/gen-1/a", "data/corpus.bin", "jobs/j o/step-1/gen-1/a"]
    assert folders_of([*others, *CONTENT.keys], [UPLOAD]) == {FOLDER: CONTENT}


def test_manifest_goes_first_then_torchs_then_the_shards() -> None:
    """Whoever finds the manifest finds the shards."""
    names = [".metadata", "manifest.json", "rank-00000.shard", "rank-00001.shard"]
    order = in_order(FOLDER, [PREFIX + name for name in names])
    assert [[key.removeprefix(PREFIX) for key in keys] for keys in order] == [
        ["manifest.json"],
        [".metadata"],
        ["rank-00000.shard", "rank-00001.shard"],
    ]


class Ticking(Clock):
    """Goes on when told."""

    def __init__(self) -> None:
        self.at_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.at_ms


class Swept(World):
    """A world whose registries sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Ticking()

    def sweep(self) -> Sweep:
        """Start one that remembers nothing."""
        return Sweep(self.handler(), self.histories(), self.objects, self.clock, TIMES)

    async def begin(self, generation: int) -> None:
        """Let a generation begin."""
        noted = NoteGeneration(job_id="job", generation=generation, at_ms=1)
        await self.histories().handle(noted)

    async def plant(self, step: int, *ranks: int, generation: int = 1) -> PartialUpload:
        """Leave objects and an unfinished upload behind."""
        prefix = f"jobs/job/step-{step:08d}/gen-{generation}/"
        for rank in ranks:
            await self.objects.put(f"{prefix}rank-{rank:05d}.shard", b"x")
        return await self.objects.begin_upload(f"{prefix}rank-00009.shard")

    async def left(self) -> tuple[list[str], int]:
        """Return the keys and the number of unfinished uploads."""
        keys = [info.key for info in await self.objects.list("")]
        return keys, len(await self.objects.unfinished_uploads(""))


@pytest.fixture
def world() -> Swept:
    """Nothing has happened."""
    return Swept()


async def sweep_twice(world: Swept, sweep: Sweep, apart_s: float = TIMES.grace_s) -> None:
    """Look, let time pass, look again."""
    await sweep.look()
    world.clock.at_ms += apart_s * 1_000
    await sweep.look()


async def test_orphans_go_and_a_complete_checkpoint_stays(world: Swept) -> None:
    """In the store nothing is left but what can be restored."""
    await world.begin(1)
    await world.upload(20)
    await world.keeper().carry_on()
    whole, _ = await world.left()
    await world.plant(10, 0)  # overtaken by step 20
    await world.objects.begin_upload(whole[-1])  # a shard of step 20 that is stored long since
    await world.begin(2)
    await world.plant(40, 0, 1)  # of generation 1: over
    await world.handler().handle(report(0, step=50))  # known, and over, too
    await world.plant(50, 0)
    await sweep_twice(world, world.sweep())
    assert await world.left() == (whole, 0)
    assert await world.phase(50) is Phase.DELETED
    await world.keeper().carry_on()
    assert await world.phase(50) is Phase.PURGED
    assert await world.phase(20) is Phase.COMPLETE


async def test_checkpoint_on_its_way_is_not_touched_before_a_day_without_a_part(
    world: Swept, tmp_path
) -> None:
    """As long as parts come it may be slow; then it is dead, and its reports are refused."""
    await world.begin(1)
    await world.handler().handle(report(0, step=20))
    upload = await world.plant(20, 0)
    file = tmp_path / "part"
    file.write_bytes(b"x")
    sweep = world.sweep()
    for number in range(1, 8):
        await sweep_twice(world, sweep, TIMES.idle_s / 2)
        await world.objects.put_part(upload, number, str(file), size_bytes=1, offset=0)
        assert await world.phase(20) is Phase.COLLECTING
    assert (await world.left())[1] == 1
    await sweep_twice(world, sweep, TIMES.idle_s)
    await sweep_twice(world, sweep, TIMES.idle_s)
    assert await world.left() == ([], 0)
    refused = await world.handler().handle(report(1, step=20))
    assert refused.rejected is not None
    assert refused.rejected.why == "deleted"


async def test_store_that_is_away_starts_every_clock_anew(world: Swept) -> None:
    """Nobody could upload meanwhile either."""
    await world.begin(2)
    await world.plant(10, 0)
    sweep = world.sweep()
    await sweep.look()
    world.objects.away = True
    await sweep.look()
    world.objects.away = False
    world.clock.at_ms += TIMES.grace_s * 1_000
    await sweep.look()
    assert (await world.left())[1] == 1
    world.clock.at_ms += TIMES.grace_s * 1_000
    await sweep.look()
    assert await world.left() == ([], 0)


async def test_checkpoint_that_becomes_complete_during_a_sweep_stays(world: Swept) -> None:
    """Its reports come, and all of it is read back, after the sweep has looked at it."""
    await world.begin(1)
    await world.upload(20)
    await world.keeper().carry_on()
    await world.plant(10, 0)
    sweep = world.sweep()
    (found,) = await sweep._orphans()
    assert found.why is Why.OVERTAKEN
    await world.upload(10)
    await world.keeper().carry_on()
    await sweep._remove(found)
    assert await world.phase(10) is Phase.COMPLETE
    assert await world.keys(10) == await world.keys(20)


async def test_two_registries_sweep_at_once_without_harm(world: Swept) -> None:
    """What one has removed the other does not miss."""
    await world.begin(1)
    await world.upload(20)
    await world.keeper().carry_on()
    whole, _ = await world.left()
    await world.begin(2)
    await world.plant(10, 0, 1)
    one, two = world.sweep(), world.sweep()
    await one.look()
    await two.look()
    world.clock.at_ms += TIMES.grace_s * 1_000
    found = await two._orphans()
    await one.look()
    for orphans in found:
        await two._remove(orphans)
    assert await world.left() == (whole, 0)


async def test_sweep_killed_anywhere_is_finished_by_the_next(world: Swept) -> None:
    """And never leaves a manifest without its shards."""
    for calls in range(20):
        world = Swept()
        await world.upload(20)
        await world.keeper().carry_on()
        await world.keeper().delete(CheckpointId(job_id="job", step=20, generation=1), "dropped")
        await world.keeper().carry_on()
        await world.objects.put(PREFIX + "manifest.json", b"{}")  # of a slow registry
        await world.plant(20, 0, 1)
        sweep = world.sweep()
        await sweep.look()
        world.clock.at_ms += TIMES.grace_s * 1_000
        world.objects.calls_left = calls
        died = False
        try:
            await sweep.look()
        except KilledError:
            died = True
        world.objects.calls_left = None
        if died:
            names = await world.keys(20)
            assert "manifest.json" not in names or len(names) == 3
            await sweep_twice(world, world.sweep())
        assert await world.left() == ([], 0)
        if not died:
            return
    pytest.fail("the sweep never came to an end")


async def test_upload_that_ends_while_it_is_looked_at_is_no_trouble(world: Swept) -> None:
    """It was listed, and is complete when its parts are counted."""
    await world.begin(1)
    await world.plant(20)
    sweep = world.sweep()
    await sweep.look()
    world.clock.at_ms += TIMES.grace_s * 1_000

    async def gone(upload):
        raise NotFoundError("no such upload")

    world.objects.parts = gone
    await sweep.look()
    assert (await world.left())[1] == 1


async def test_trouble_of_the_store_is_logged_once(world: Swept, caplog) -> None:
    """A store that is away for an hour is one line."""
    world.objects.away = True
    sweep = world.sweep()
    for _ in range(3):
        await sweep.look()
    assert len([r for r in caplog.records if "orphans stay" in r.message]) == 1
