"""Agents as processes of their own, on a real NATS server, and killed for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.integration.agent.harness import ROOT, Plane, hosts_on, own, spec_json, start_all
from tests.waiting import until

from everstep.agent.processes import is_running
from everstep.bus.nats import NatsBus
from everstep.core.errors import EverstepError
from everstep.objectstore.memory import MemoryObjects
from everstep.wire.v1.agents_pb2 import KILLED, RANK_EXITED, RANK_READY
from everstep.wire.v1.common_pb2 import HostPlacement, Layout, Placement, RankRestore


@pytest.fixture
async def plane(nats_url):
    """A control plane on the real bus."""
    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.wait_connected()
        plane = Plane(bus, MemoryObjects())
        await plane.listen()
        yield plane


@contextmanager
def agent_process(host, nats_url):
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
                assert len(plane.reported(RANK_READY)) == 2
                replies = {one: await plane.stop(one, 2) for one in ("p1", "p2")}
                assert not any(is_running(pid) for pid in pids)
                mine = {one.step for one in replies["p1"].held if one.own and one.rank == 0}
                copies = {one.step for one in replies["p2"].held if not one.own and one.rank == 0}
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


async def test_exit_is_told_within_a_second(tmp_path, plane, nats_url):
    """A killed rank is reported with its signal, soon after its death."""
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
            assert process.wait(30) == 0
            await until(lambda: not is_running(server))
