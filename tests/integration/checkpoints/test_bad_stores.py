"""Stores that are full, slow, strict or wrong: an error that names the object, and no harm done."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tests.clocks import ManualClock
from tests.integration.agent import harness
from tests.integration.agent.harness import (
    RankRestore,
    hosts_on,
    new_plane,
    placed,
    spec_json,
    start_all,
)
from tests.integration.agent.test_lifecycle import digest_after
from tests.integration.checkpoints.faulty_store import answer, faulty_store
from tests.unit.checkpoint_registry.keeping import World
from tests.waiting import until

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.codec import checkpoint_stream
from everstep.cli.checkpoint_files import verify
from everstep.core.errors import StoreRefuses
from everstep.core.system import RandomIds, SystemClock
from everstep.objectstore.s3 import S3Store
from everstep.wire.v1.agents_pb2 import RANK_READY, RESTORE_FAILED, START_FAILED, SaveRanks
from everstep.wire.v1.checkpoints_pb2 import Shard
from everstep.wire.v1.common_pb2 import CommandReply

PART_BYTES = 5 << 20
LARGE = 2 * PART_BYTES + 1_000  # three parts
SMALL = 4_096


@pytest.fixture
async def store(servers):
    """The proxy; without rules it is the real store."""
    async with faulty_store(servers.servers.s3_endpoint) as store:
        yield store


@pytest.fixture
def access(servers, store):
    """How the store is reached."""
    credentials = servers.servers.credentials
    return {
        "endpoint": store.endpoint,
        "access_key": credentials.s3_access_key,
        "secret_key": credentials.s3_secret_key,
        "bucket": RandomIds().new_id("bad"),
        "secure": False,
    }


@pytest.fixture
async def objects(access):
    """The host's own access to the store."""
    async with S3Store.open(**access) as objects:
        yield objects


@pytest.fixture
async def run(tmp_path, objects):
    """A host with an agent on the store."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        settings = host.settings.model_copy(update={"upload_part_bytes": PART_BYTES})
        host.settings = settings
        plane.objects = objects
        async with host.up(plane):
            yield plane, host


async def begin(run, size):
    """Train, with one checkpoint stored; returns its report."""
    plane, host = run
    await start_all(plane, placed([host], 1), 1, spec_json(bytes=size, step_ms=20))
    await plane.step_reached(1, 2)
    return await save(run)


async def save(run):
    """Save; returns the report of what was stored."""
    plane, _ = run
    count = len(plane.shards)
    await ask(run)
    return await until(lambda: len(plane.shards) > count and plane.shards[-1], limit_s=120)


async def ask(run):
    """Ask for a checkpoint."""
    plane, _ = run
    await plane.ask("h1", SaveRanks(job_id=harness.JOB, generation=1), CommandReply)


async def is_lost(run, caplog):
    """Save what cannot be stored; returns what is said of it, with training still going on."""
    plane, host = run
    caplog.clear()
    count = len(plane.shards)
    await ask(run)

    def said():
        lines = [record.getMessage() for record in caplog.records]
        return next((line for line in lines if "lacks rank 0" in line), "")

    line = await until(said, what="the loss is said", limit_s=120)
    control = host.agent.runs.get(harness.JOB).ranks[0].control
    await until(lambda: not control.durable_busy, what="the slot is free")
    await plane.step_reached(1, plane.newest_step(1) + 3)
    assert len(plane.shards) == count
    return line


async def is_sound(plane, report):
    """A stored checkpoint reads back as what the rank had."""
    [shard] = report.shards
    assert digest_after(report.step) in await plane.objects.get(shard.uri)


def date(ahead_s):
    """The date header of a server that this host's clock is ahead of."""
    return format_datetime(datetime.now(UTC) - timedelta(seconds=ahead_s), usegmt=True)


REFUSALS = {
    "quota": (lambda: answer(403, "QuotaExceeded", message="bucket quota"), "raise the quota"),
    "disk": (lambda: answer(507), "is full (HTTP 507"),
    "keys": (lambda: answer(403, "InvalidAccessKeyId"), "EVERSTEP_S3_ACCESS_KEY"),
    "rights": (lambda: answer(403, "AccessDenied"), "our keys may not do that"),
    "clock": (
        lambda: answer(403, "RequestTimeTooSkewed", date=date(1_500)),
        "this host's clock is 25 min",
    ),
}


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("why", REFUSALS)
async def test_refused_upload_is_said_and_the_next_checkpoint_is_stored(
    run, store, caplog, why, size
):
    """One checkpoint less, at once; training goes on and the last one is as good as before."""
    plane, _ = run
    first = await begin(run, size)
    refusal, advice = REFUSALS[why]
    store.rules.append(lambda request: refusal() if request.is_upload else None)
    line = await is_lost(run, caplog)
    assert advice in line
    assert f"'jobs/{harness.JOB}/step-" in line
    assert "rank-00000.shard" in line
    assert "the next one tries again" in line
    assert len(store.refused) <= 4  # each part once: nothing is asked again in vain
    store.rules.clear()
    await is_sound(plane, await save(run))
    await is_sound(plane, first)
    assert await plane.objects.unfinished_uploads("") == []


@pytest.mark.parametrize(
    "said", [answer(503, "SlowDown"), answer(500, "InternalError"), answer(502)]
)
async def test_store_that_is_slow_or_broken_for_a_moment_costs_no_checkpoint(run, store, said):
    """The very same requests are made again, and the checkpoint is stored."""
    plane, _ = run
    await begin(run, LARGE)
    left = [3]

    def busy(request):
        if not request.is_upload or not left[0]:
            return None
        left[0] -= 1
        return said

    store.rules.append(busy)
    report = await save(run)
    assert len(store.refused) == 3
    await is_sound(plane, report)


async def test_wrong_keys_are_refused_by_the_real_server_with_the_object(access, tmp_path):
    """The error names the object and the settings to look at."""
    file = tmp_path / "slot"
    file.write_bytes(b"x")
    async with S3Store.open(**access) as right:
        await right.put("jobs/j/x.shard", b"")
    async with S3Store.open(**access | {"secret_key": "wrong"}) as wrong:
        with pytest.raises(StoreRefuses, match="EVERSTEP_S3_SECRET_KEY"):
            await wrong.put_file("jobs/j/x.shard", str(file), size_bytes=1)
    async with S3Store.open(**access | {"access_key": "nobody"}) as unknown:
        with pytest.raises(StoreRefuses, match=r"object 'jobs/j/x\.shard'.*not take our keys"):
            await unknown.begin_upload("jobs/j/x.shard")


async def test_clock_that_is_behind_is_named_by_what_the_real_server_says(access, tmp_path):
    """Two hours: the error says by how much, and what to do."""
    file = tmp_path / "slot"
    file.write_bytes(b"x")
    clock = ManualClock(SystemClock().now_ms() - 7_200_000)
    async with S3Store.open(**access, clock=clock) as objects:
        with pytest.raises(StoreRefuses, match=r"clock is 1(19|20) min \d+ s behind the object"):
            await objects.put_file("jobs/j/x.shard", str(file), size_bytes=1)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda body: body[:-1] + bytes([body[-1] ^ 1]), "expected xxh3-128"),
        (lambda body: body[:-1], "bytes, got "),
    ],
    ids=["flipped", "truncated"],
)
async def test_object_that_changed_on_its_way_is_refused_by_name(run, store, size, spoil, found):
    """The registry reads what is stored; it is no checkpoint, the next one is."""
    plane, _ = run
    await begin(run, size)
    last = []

    def once(request):
        if not request.is_upload or last:
            return None
        last.append(request)
        return spoil

    store.rules.append(once)
    bad = await save(run)
    store.rules.clear()
    good = await save(run)
    world = World()
    world.objects = plane.objects
    for report in (bad, good):
        report.job_id, report.world_size = harness.JOB, 1
        await world.handler().handle(codec.report_shards(report))
    await world.keeper().carry_on()
    told = [
        [event.type for event in await world.store.load(stream_of(report))]
        for report in (bad, good)
    ]
    assert told == [
        ["shards_stored.v2", "shards_refused.v1", "checkpoint_deleted.v1", "checkpoint_purged.v1"],
        ["shards_stored.v2", "checkpoint_completed.v1"],
    ]
    _, refused, *_ = await world.store.load(stream_of(bad))
    assert refused.data["uri"] == bad.shards[0].uri
    assert found in refused.data["why"]


def stream_of(report):
    """The stream of a report's checkpoint."""
    return checkpoint_stream(report.job_id, report.generation, report.step)


async def test_restore_names_what_is_wrong_with_each_object(run):
    """Truncated, flipped, missing, of another job, of another step: none of them is loaded."""
    plane, host = run
    report = await begin(run, SMALL)
    [shard] = report.shards
    data = await plane.objects.get(shard.uri)
    other = harness.make_host(host.settings.run_dir.parent / "other", "h2")
    bad = {
        "truncated": data[:-1],
        "flipped": data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "foreign": await shard_of_another_job(plane, other),
    }
    for name, content in bad.items():
        await plane.objects.put(f"jobs/{name}", content)
    said = {"bytes": shard.bytes, "checksum": shard.checksum}
    sources = [
        Shard(uri="jobs/missing", **said),
        Shard(uri="jobs/truncated", **said),
        Shard(uri="jobs/flipped", **said),
        Shard(uri="jobs/foreign", bytes=len(bad["foreign"])),  # its own checksum would fit
    ]
    await plane.stop("h1", 2)
    await start_all(
        plane,
        placed([host], 1),
        2,
        spec_json(bytes=SMALL),
        restore_step=report.step,
        restores=[RankRestore(rank=0, sources=sources)],
    )
    [failed] = await until(lambda: plane.reported(START_FAILED, 2))
    assert failed.exit_class == RESTORE_FAILED
    problems = dict(zip(("missing", *bad), failed.restore_problems, strict=True))
    assert all(f"from object jobs/{name}" in problem for name, problem in problems.items())
    assert "no object 'jobs/missing'" in problems["missing"]
    assert f"{shard.bytes - 1} of {shard.bytes} bytes came" in problems["truncated"] or (
        f"checksum expected {shard.checksum}" in problems["truncated"]
    )
    assert f"checksum expected {shard.checksum}" in problems["flipped"]
    assert f"of job {harness.JOB}, got step" in problems["foreign"]
    assert len(failed.refused_sources) == 4
    await plane.stop("h1", 3)
    restores = [RankRestore(rank=0, sources=[*sources, shard])]
    await start_all(
        plane,
        placed([host], 1),
        3,
        spec_json(bytes=SMALL),
        restore_step=report.step,
        restores=restores,
    )
    [ready] = await until(lambda: plane.reported(RANK_READY, 3))
    assert (ready.restored_step, ready.source_kind) == (report.step, "object_store")


async def shard_of_another_job(plane, host):
    """What another job has stored."""
    from everstep.memory.writer import Owner, SlotWriter, TensorSpec

    path = host.settings.run_dir.parent / "slot"
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = Owner(job_id="other", rank=0, world_size=1, generation=1)
    writer = SlotWriter(path, owner, [TensorSpec(name="w", dtype="uint8", shape=(8,), bytes=8)])
    writer.begin()
    writer.commit(step=3, data_state={}, objects={})
    from everstep.memory.slot import read_preamble

    preamble = read_preamble(path)
    assert preamble is not None
    return path.read_bytes()[: preamble.slot_bytes]


async def test_manifest_that_names_a_missing_shard_is_told_by_name(run):
    """Whoever checks a checkpoint learns which object is gone, and that the others are sound."""
    plane, _ = run
    report = await begin(run, SMALL)
    [shard] = report.shards
    there = {"rank": 0, "uri": shard.uri, "bytes": shard.bytes, "checksum": shard.checksum}
    gone = there | {"rank": 1, "uri": shard.uri.replace("rank-00000", "rank-00001")}
    manifest = {
        "job_id": harness.JOB,
        "step": report.step,
        "generation": 1,
        "shards": [there, gone],
    }
    await plane.objects.put("jobs/manifest.json", json.dumps(manifest).encode())
    read = json.loads(await plane.objects.get("jobs/manifest.json"))
    found = await verify(plane.objects, read, lambda _done, _of: None)
    assert [(one.uri, one.faults) for one in found.objects] == [
        (shard.uri, ()),
        (gone["uri"], ("there is no such object",)),
    ]
