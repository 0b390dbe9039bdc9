"""A real object store that is really full, until it is given more room."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.integration.agent import harness
from tests.integration.agent.harness import hosts_on, new_plane
from tests.integration.checkpoints.test_bad_stores import ask, begin, is_sound, save
from tests.waiting import until

from everstep.agent import transfer
from everstep.core.system import RandomIds
from everstep.local.bundled_s3 import prepare_s3, s3_endpoint
from everstep.local.servers import RunningServer, new_credentials, new_ports
from everstep.objectstore.s3 import S3Store

SIZE = 3 << 20
VOLUME_MB = 8  # two checkpoints fill one, and the third begins in it still
SAVES_MAX = 8  # far more than fit


@pytest.fixture
async def server(tmp_path):
    """A store of its own; ``up(volumes)`` starts it with room for so many volumes."""
    ids = RandomIds()
    ports, credentials = new_ports(ids), new_credentials(ids)
    command = prepare_s3(
        tmp_path / "s3",
        port=ports.s3,
        internal_ports=ports.s3_internal,
        access_key=credentials.s3_access_key,
        secret_key=credentials.s3_secret_key,
    )

    @asynccontextmanager
    async def up(volumes):
        room = (f"-volume.max={volumes}", f"-master.volumeSizeLimitMB={VOLUME_MB}")
        running = RunningServer(
            replace(command, argv=(*command.argv, *room)), tmp_path / f"s3-{volumes}.log"
        )
        await running.start()
        try:
            yield
        finally:
            await running.stop()

    access = {
        "endpoint": s3_endpoint(ports.s3),
        "access_key": credentials.s3_access_key,
        "secret_key": credentials.s3_secret_key,
        "bucket": ids.new_id("full"),
        "secure": False,
    }
    async with S3Store.open(**access) as objects:
        yield up, objects


async def test_store_that_is_full_costs_checkpoints_and_nothing_else_until_there_is_room(
    server, tmp_path, caplog, monkeypatch
):
    """Training goes on, the log says what to look at, and the next checkpoint is stored again."""
    monkeypatch.setattr(transfer, "RETRY_S_MAX", 0.5)
    up, objects = server
    async with hosts_on(tmp_path / "hosts", "h1") as [host], new_plane() as plane:
        plane.objects = objects
        run = (plane, host)
        async with host.up(plane):
            async with up(1):
                first = await begin(run, SIZE)
                line = await fill(run, caplog)
                assert f"'jobs/{harness.JOB}/step-" in line
                assert "the next one tries again" in line
                assert "a server whose disk is full may say no more" in line
                assert "checkpoint.keep_last" in line
                await is_sound(plane, first)
            async with up(8):
                await is_sound(plane, await save(run))
                await is_sound(plane, first)


async def fill(run, caplog):
    """Save until a checkpoint is lost; return what is said of it, with training going on."""
    plane, _ = run
    caplog.clear()

    def said():
        lines = [record.getMessage() for record in caplog.records]
        return next((line for line in lines if "lacks rank 0" in line), "")

    for _ in range(SAVES_MAX):
        count = len(plane.shards)
        await ask(run)
        await until(lambda count=count: said() or len(plane.shards) > count, limit_s=120)
        if said():
            await plane.step_reached(1, plane.newest_step(1) + 3)
            return said()
    raise AssertionError(f"{SAVES_MAX} checkpoints of {SIZE} bytes fit into {VOLUME_MB} MB")
