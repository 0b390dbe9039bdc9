"""Agents as processes of their own, on a real NATS server, and killed for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.integration.agent.harness import (
    ROOT,
    Plane,
    RankRestore,
    held_ranks,
    hosts_on,
    own,
    spec_json,
    start_all,
)
from tests.waiting import until

from everstep.agent.processes import is_running
from everstep.bus.nats import NatsBus
from everstep.core.errors import EverstepError
from everstep.core.system import RandomIds
from everstep.local.bundled_nats import nats_url as nats_url_of
from everstep.local.bundled_nats import prepare_nats
from everstep.local.server_command import free_ports
from everstep.local.servers import RunningServer
from everstep.objectstore.memory import MemoryObjects
from everstep.wire.v1.agents_pb2 import KILLED, RANK_EXITED, RANK_READY
from everstep.wire.v1.common_pb2 import HostPlacement, Layout, Placement


@pytest.fixture
async def plane(nats_url):
    """A control plane on the real bus."""
    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.wait_connected()
        plane = Plane(bus, MemoryObjects())
        await plane.listen()
        yield plane


@pytest.fixture
async def own_nats(tmp_path):
    """A NATS server that a test may kill, and its URL."""
    (port,) = free_ports(1, RandomIds())
    command = prepare_nats(tmp_path / "nats", port=port, password="p", system_password="s")
    server = RunningServer(command, tmp_path / "nats.log")
    await server.start()
    yield server, nats_url_of(port, "p")
    await server.stop()


@pytest.fixture
def s3(servers):
    """Settings of the real object store."""
    return {
        "EVERSTEP_S3_ENDPOINT": servers.servers.s3_endpoint,
        "EVERSTEP_S3_ACCESS_KEY": servers.servers.credentials.s3_access_key,
        "EVERSTEP_S3_SECRET_KEY": servers.servers.credentials.s3_secret_key,
        "EVERSTEP_S3_SECURE": "false",
        "EVERSTEP_S3_BUCKET": "agent-test",
    }


@contextmanager
def agent_process(host, nats_url, **environment):
    """The host's agent as a process; killed without mercy at the end."""
    settings = host.settings
    with (settings.run_dir.parent / f"{host.host_id}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.agent.agent_program"],
            cwd=ROOT,
            stderr=log,
            env={
                **os.environ,
                "EVERSTEP_HOST_ID": settings.host_id,
                "EVERSTEP_CHIPS": str(settings.chips),
                "EVERSTEP_RUN_DIR": str(settings.run_dir),
                "EVERSTEP_MEMORY_DIR": str(settings.memory_dir),
                "EVERSTEP_NATS_URL": nats_url,
                **environment,
            },
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def warm(plane, host_id):
    """Wait until a host answers that it is ready for work."""

    async def ask():
        try:
            return (await plane.probe(host_id)).fork_server_warm
        except EverstepError:
            return False

    await until(ask, what=f"{host_id} warm")


def placement(plane, *host_ids):
    """One rank a host, copies kept by the next."""
    joined = {one.host_id: one for one in plane.joins}
    parts = [
        HostPlacement(
            host_id=host_id,
            address=joined[host_id].address,
            peer_port=joined[host_id].peer_port,
            ranks=[index],
            replica_host_id=host_ids[(index + 1) % len(host_ids)] if len(host_ids) > 1 else "",
        )
        for index, host_id in enumerate(host_ids)
    ]
    return Placement(layout=Layout(pp=1, dp_replicate=1, dp_shard=len(host_ids), tp=1), hosts=parts)


async def test_killed_agent_comes_back_and_goes_on(tmp_path, plane, nats_url):
    """Kill -9 of the agent alone: ranks step on, are adopted, replicated and fenced by the next."""
    async with hosts_on(tmp_path, "p1", "p2") as [host, other]:
        with agent_process(other, nats_url):
            with agent_process(host, nats_url):
                await warm(plane, "p1")
                await warm(plane, "p2")
                await until(lambda: {one.host_id for one in plane.joins} == {"p1", "p2"})
                await start_all(plane, placement(plane, "p1", "p2"), 1, spec_json())
                await plane.step_reached(1, 5)
                pids = {one.pid for one in plane_ranks(host)}
            assert all(is_running(pid) for pid in pids)
            with agent_process(host, nats_url):
                await warm(plane, "p1")
                newest = plane.newest_step(1)
                await plane.step_reached(1, newest + 5)
                await until(lambda: {one.rank for one in plane.reported(RANK_READY)} == {0, 1})
                assert len(plane.reported(RANK_READY)) == 2
                replies = {one: await plane.stop(one, 2) for one in ("p1", "p2")}
                assert not any(is_running(pid) for pid in pids)
                mine, copies = (
                    {
                        step
                        for rank, step, is_own in held_ranks(replies[name].held)
                        if (rank, is_own) == (0, own_ones)
                    }
                    for name, own_ones in (("p1", True), ("p2", False))
                )
                assert mine & copies, (mine, copies)
                step = max(mine)
                restores = [RankRestore(rank=0, sources=[own("p1")])]
                spec = spec_json(steps=step + 5)
                await start_all(
                    plane, placement(plane, "p1"), 2, spec, restore_step=step, restores=restores
                )
                [ready] = await until(lambda: plane.reported(RANK_READY, 2))
                assert (ready.source_kind, ready.restored_step) == ("own_memory", step)
                await until(lambda: plane.reported(RANK_EXITED, 2))


def plane_ranks(host):
    """The recorded ranks of a host's only job."""
    from everstep.agent.runs import RunFiles

    [record] = RunFiles(host.settings.run_dir / "jobs").load()
    return record.ranks


async def test_killed_rank_is_told_with_its_signal(tmp_path, plane, nats_url):
    """A rank that could not speak is reported by what the kernel says."""
    async with hosts_on(tmp_path, "p1") as [host]:
        with agent_process(host, nats_url):
            await warm(plane, "p1")
            await until(lambda: plane.joins)
            await start_all(plane, placement(plane, "p1"), 1, spec_json())
            await plane.step_reached(1, 3)
            [rank] = plane_ranks(host)
            os.kill(rank.pid, signal.SIGKILL)
            [end] = await until(lambda: plane.reported(RANK_EXITED))
            assert (end.exit_class, end.signal, end.host_id) == (KILLED, 9, "p1")


async def test_sigterm_of_an_idle_host_ends_all_of_it(tmp_path, plane, nats_url):
    """Nothing of an idle host is left behind: neither agent nor fork server."""
    async with hosts_on(tmp_path, "p1") as [host]:
        with agent_process(host, nats_url) as process:
            await warm(plane, "p1")
            server = host.fork_server_pid
            assert is_running(server)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            await until(lambda: not is_running(server))


async def test_training_outlives_the_bus_and_all_is_told_later(tmp_path, own_nats):
    """NATS is killed and a rank dies meanwhile: the other steps on, and the death is told after."""
    server, url = own_nats
    async with hosts_on(tmp_path, "p1") as [host], NatsBus.open(url, name="test") as bus:
        plane = Plane(bus, MemoryObjects())
        await bus.wait_connected()
        await plane.listen()
        with agent_process(host, url):
            await warm(plane, "p1")
            both = placement(plane, "p1")
            both.hosts[0].ranks[:] = [0, 1]
            both.layout.dp_shard = 2
            await start_all(plane, both, 1, spec_json())
            await plane.step_reached(1, 3)
            first, second = plane_ranks(host)
            await server.kill()
            os.kill(second.pid, signal.SIGKILL)
            await until(lambda: not is_running(second.pid))
            assert is_running(first.pid)
            before = plane.newest_step(1)
            await server.start()
            [end] = await until(lambda: plane.reported(RANK_EXITED))
            assert (end.rank, end.signal) == (1, 9)
            beats = len(plane.heartbeats)
            await until(lambda: len(plane.heartbeats) > beats)
            await plane.step_reached(1, before + 1)
            await warm(plane, "p1")  # commands are answered again


async def test_state_goes_through_the_real_object_store(tmp_path, plane, nats_url, s3):
    """A checkpoint is uploaded by one host and restored by another, over S3."""
    async with hosts_on(tmp_path, "p1", "p2") as [host, other]:
        with agent_process(host, nats_url, **s3), agent_process(other, nats_url, **s3):
            await warm(plane, "p1")
            await warm(plane, "p2")
            await until(lambda: {one.host_id for one in plane.joins} == {"p1", "p2"})
            spec = spec_json(steps=8, bytes=5_000_000)
            await start_all(plane, placement(plane, "p1"), 1, spec)
            report = await until(lambda: plane.shards and plane.shards[0])
            assert (report.step, [one.rank for one in report.shards]) == (8, [0])
            restores = [RankRestore(rank=0, sources=[report.shards[0]])]
            spec = spec_json(steps=10, bytes=5_000_000)
            await start_all(
                plane, placement(plane, "p2"), 2, spec, restore_step=8, restores=restores
            )
            [ready] = await until(lambda: plane.reported(RANK_READY, 2))
            assert (ready.source_kind, ready.restored_step) == ("object_store", 8)
            [end] = await until(lambda: plane.reported(RANK_EXITED, 2))
            assert end.step == 10
