"""Copies follow the ranks: past a peer that stands still, and to another host after a loss."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import AsyncExitStack

import pytest
from tests.integration.agent import harness
from tests.integration.agent.harness import (
    Plane,
    RankRestore,
    hosts_on,
    new_plane,
    own,
    peer,
    placed,
    spec_json,
    start_all,
    start_command,
)
from tests.integration.agent.test_lifecycle import digest_after
from tests.integration.agent.test_process import agent_process, placement, warm
from tests.waiting import until

from everstep.agent import peer_protocol, peers, replication
from everstep.bus.nats import NatsBus
from everstep.controller.outside import Fenced
from everstep.controller.second_copies import second_copies
from everstep.memory.reader import SlotReader
from everstep.objectstore.memory import MemoryObjects
from everstep.wire.v1.agents_pb2 import RANK_READY, RestoreRanks
from everstep.wire.v1.checkpoints_pb2 import HostHoldings
from everstep.wire.v1.common_pb2 import CommandReply

STEP = 6
NEVER_MS = 1e12


async def test_stopped_peer_holds_snapshots_back_but_never_a_step(tmp_path, nats_url, monkeypatch):
    """The copied snapshot is kept; later ones go on without copies, until it is back."""
    monkeypatch.setattr(peer_protocol, "PROGRESS_S_MAX", 0.3)
    monkeypatch.setattr(replication, "PEER_AWAY_MS_MAX", NEVER_MS)
    async with (
        hosts_on(tmp_path, "p1", "p2") as [host, other],
        NatsBus.open(nats_url, name="test") as bus,
    ):
        await bus.wait_connected()
        plane = Plane(bus, MemoryObjects())
        await plane.listen()
        with agent_process(other, nats_url) as process:
            async with host.up(plane) as agent:
                await warm(plane, "p1")
                await warm(plane, "p2")
                await until(lambda: {one.host_id for one in plane.joins} == {"p1", "p2"})
                await start_all(plane, placement(plane, "p1", "p2"), 1, spec_json())
                rank = agent.runs.get(harness.JOB).ranks[0]

                async def newest():  # both slots may look half written while one overtakes
                    return (await until(lambda: agent.memory.newest(harness.JOB, 0))).step

                async def ahead():
                    return rank.last_step > await newest() + 100

                async def newer():
                    return await newest() > seen + 20

                await until(lambda: rank.control.replicated_step >= 5, what="copied")
                os.kill(process.pid, signal.SIGSTOP)
                await until(ahead, what="steps went on")
                copied_step = rank.control.replicated_step
                assert agent.memory.find(harness.JOB, 0, copied_step, own=True), "overwritten"
                assert not rank.control.replication_off

                monkeypatch.setattr(replication, "PEER_AWAY_MS_MAX", 0.0)
                await until(lambda: rank.control.replication_off, what="switched off")
                seen = await newest()
                await until(newer, what="snapshots went on")

                monkeypatch.setattr(replication, "PEER_AWAY_MS_MAX", NEVER_MS)
                seen = await newest()
                os.kill(process.pid, signal.SIGCONT)
                await until(lambda: rank.control.replicated_step > seen, what="copied again")
                await until(lambda: not rank.control.replication_off)


@pytest.fixture
async def four(tmp_path):
    """Four hosts with agents, nothing placed on them."""
    async with AsyncExitStack() as stack:
        hosts = await stack.enter_async_context(hosts_on(tmp_path, "a", "b", "c", "d"))
        plane = await stack.enter_async_context(new_plane())
        ups = [await stack.enter_async_context(AsyncExitStack()) for _ in hosts]
        for up, host in zip(ups, hosts, strict=True):
            await up.enter_async_context(host.up(plane))

        async def kill(index):
            await ups[index].aclose()
            await hosts[index].destroy()

        yield plane, hosts, kill


def copied(host, rank, step):
    """Whether a host keeps a copy of a rank's step."""
    return host.agent.memory.find(harness.JOB, rank, step, own=False) is not None


def state_on(host, rank, step):
    """The fake rank's state in its own slot, checked."""
    with SlotReader(host.agent.memory.find(harness.JOB, rank, step, own=True).path) as reader:
        reader.verify()
        return bytes(reader.tensor(reader.entry("moments")))


async def test_second_host_lost_right_after_a_change_costs_nothing(four):
    """C takes A's seat, and B has its copy there before anybody steps: then B may die as well."""
    plane, [a, b, c, d], kill = four
    hold = spec_json(fail="hold", fail_at=STEP + 1, patient=True)
    await start_all(plane, placed([a, b], 1), 1, hold)
    await until(lambda: copied(a, 1, STEP) and copied(b, 0, STEP), what="copied")
    await kill(0)

    await plane.stop("b", 2)
    await plane.stop("c", 2)
    standing = spec_json(step_ms=10_000_000)  # nobody will complete a step of generation 2
    restores = [RankRestore(rank=0, sources=[peer(b)]), RankRestore(rank=1, sources=[own("b")])]
    await start_all(plane, placed([c, b], 1), 2, standing, restore_step=STEP, restores=restores)
    await until(lambda: len(plane.reported(RANK_READY, 2)) == 2, what="restored")
    await until(lambda: copied(c, 1, STEP), what="b's copy on c")
    control = b.agent.runs.get(harness.JOB).ranks[1].control
    await until(lambda: control.replicated_step == STEP, what="told to b's rank")
    assert copied(b, 0, STEP)
    assert plane.newest_step(2) == -1
    await kill(1)

    await plane.stop("c", 3)
    await plane.stop("d", 3)
    restores = [RankRestore(rank=0, sources=[own("c")]), RankRestore(rank=1, sources=[peer(c)])]
    await start_all(plane, placed([c, d], 1), 3, standing, restore_step=STEP, restores=restores)
    ready = await until(lambda: len(got := plane.reported(RANK_READY, 3)) == 2 and got)
    assert {(one.host_id, one.rank, one.restored_step) for one in ready} == {
        ("c", 0, STEP),
        ("d", 1, STEP),
    }
    assert state_on(d, 1, STEP) == digest_after(STEP)


async def test_new_agent_pushes_what_the_old_one_had_not(tmp_path):
    """Both agents go in the middle of a push, and no further step comes: the copy is made."""
    async with hosts_on(tmp_path, "a", "b") as [a, b], new_plane() as plane:
        async with a.up(plane):
            async with b.up(plane):
                both = placed([a, b], 1)
            hold = spec_json(fail="hold", fail_at=3)
            sides = {"rendezvous_address": "127.0.0.1", "rendezvous_port": 1, "restore_step": -1}
            start = start_command(both, "a", generation=1, spec_json=hold, **sides)
            assert (await plane.ask("a", start, CommandReply)).outcome.accepted
            await plane.step_reached(1, 2)
        async with a.up(plane) as agent, b.up(plane):
            step = agent.memory.newest(harness.JOB, 0).step
            await until(lambda: copied(b, 0, step), what="copied")
            assert plane.newest_step(1) == 2


async def test_copies_are_not_left_with_another_host_that_has_the_port_now(tmp_path, monkeypatch):
    """Hosts of one machine share its ports; what is for b is not for c."""
    monkeypatch.setattr(peers, "LOOK_S", 0.05)
    async with (
        hosts_on(tmp_path, "a", "b", "c") as [a, b, c],
        new_plane() as plane,
        a.up(plane) as agent,
    ):
        async with b.up(plane):
            await start_all(plane, placed([a, b], 1), 1, spec_json())
            rank = agent.runs.get(harness.JOB).ranks[0]
            await until(lambda: rank.control.replicated_step >= 5, what="copied")
            c.settings = c.settings.model_copy(update={"peer_port": b.agent.facts.peer_port})
        async with c.up(plane), b.up(plane):
            before = rank.control.replicated_step
            await until(lambda: rank.control.replicated_step > before + 5, what="again")
            assert copied(b, 0, rank.control.replicated_step)
            assert c.agent.memory.held(harness.JOB) == []


async def test_peer_that_comes_back_on_another_port_is_found_and_remembered(tmp_path, monkeypatch):
    """Somebody has its old port and takes connections; whose agent is new knows the new one too."""
    monkeypatch.setattr(peers, "LOOK_S", 0.05)
    monkeypatch.setattr(peer_protocol, "PROGRESS_S_MAX", 0.3)  # the other program never answers
    monkeypatch.setattr(replication, "PEER_AWAY_MS_MAX", NEVER_MS)
    async with hosts_on(tmp_path, "a", "b") as [a, b], new_plane() as plane:
        async with a.up(plane) as agent:
            async with b.up(plane):
                await start_all(plane, placed([a, b], 1), 1, spec_json())
                rank = agent.runs.get(harness.JOB).ranks[0]
                await until(lambda: rank.control.replicated_step >= 5, what="copied")
                old_port = b.agent.facts.peer_port
            with socket.create_server(("127.0.0.1", old_port)):
                async with b.up(plane):
                    new_port = b.agent.facts.peer_port
                    assert new_port != old_port
                    before = rank.control.replicated_step
                    await until(lambda: rank.control.replicated_step > before + 5, what="again")
                    assert copied(b, 0, rank.control.replicated_step)
        monkeypatch.setattr(peers, "LOOK_S", NEVER_MS)
        async with a.up(plane) as agent, b.up(plane):
            assert b.agent.facts.peer_port == new_port
            rank = agent.runs.get(harness.JOB).ranks[0]
            before = rank.control.replicated_step
            await until(lambda: rank.control.replicated_step > before + 5, what="copied by the new")


async def test_second_copies_of_a_waiting_job_serve_and_are_given_up(four):
    """A is lost and nobody takes its seat: C brings what B alone holds, before B dies too."""
    plane, [a, b, c, d], kill = four
    hold = spec_json(fail="hold", fail_at=STEP + 1, patient=True)
    await start_all(plane, placed([a, b, c], 1), 1, hold)
    await until(lambda: copied(a, 2, STEP) and copied(b, 0, STEP) and copied(c, 1, STEP))
    await kill(0)

    told = [answer(host, await plane.stop(host.host_id, 2)) for host in (b, c)]
    step, copies = second_copies(told, lambda _: 3)
    assert (step, sorted(copies)) == (STEP, ["b", "c"])  # c's own copies were on a
    for host_id, sources in copies.items():
        command = RestoreRanks(job_id=harness.JOB, generation=2, step=step, sources=sources)
        assert (await plane.ask(host_id, command, CommandReply)).outcome.accepted
    again = [answer(host, await plane.stop(host.host_id, 2)) for host in (b, c)]
    assert second_copies(again, lambda _: 3) == (STEP, {})
    await kill(1)

    await plane.stop("c", 3)
    await plane.stop("d", 3)
    turned = placed([c, d], 1)
    turned.hosts[0].ranks[:], turned.hosts[1].ranks[:] = [2], [0, 1]
    restores = [
        RankRestore(rank=0, sources=[peer(c)]),
        RankRestore(rank=1, sources=[peer(c)]),
        RankRestore(rank=2, sources=[own("c")]),
    ]
    await start_all(plane, turned, 3, spec_json(), restore_step=STEP, restores=restores)
    ready = await until(lambda: len(got := plane.reported(RANK_READY, 3)) == 3 and got)
    assert {one.restored_step for one in ready} == {STEP}
    memory = c.agent.memory
    await until(lambda: not memory.directory(harness.JOB, 0, own=True).exists(), what="given up")


def answer(host, told):
    """A fenced host's answer as the controller takes it."""
    facts = host.agent.facts
    assert (told.pod, told.power) == (facts.pod, facts.power) != ("", "")
    held = HostHoldings(
        host_id=told.host_id, address=told.address, peer_port=facts.peer_port, held=told.held
    )
    return Fenced(host_id=told.host_id, address="", rendezvous_port=1, holdings=held)


async def test_former_copies_stay_until_a_newer_step_is_safe_elsewhere(four):
    """When copies move to other hosts, nobody is without one at any time."""
    plane, [a, b, c, _], _ = four
    hosts = [a, b, c]
    hold = spec_json(fail="hold", fail_at=STEP + 1, patient=True)
    await start_all(plane, placed(hosts, 1), 1, hold)
    former = [(b, 0), (c, 1), (a, 2)]
    await until(lambda: all(copied(*one, STEP) for one in former), what="copied")

    turned = placed(hosts, 1)  # the other way round
    for index, host in enumerate(turned.hosts):
        host.replica_host_id = hosts[index - 1].host_id
    new = [(c, 0), (a, 1), (b, 2)]
    restores = [RankRestore(rank=n, sources=[own(host.host_id)]) for n, host in enumerate(hosts)]
    for generation, spec in ((2, spec_json(step_ms=10_000_000)), (3, spec_json(patient=True))):
        for host in hosts:
            await plane.stop(host.host_id, generation)
        await start_all(plane, turned, generation, spec, restore_step=STEP, restores=restores)
        if generation == 2:
            await until(lambda: all(copied(*one, STEP) for one in new), what="copied anew")
            assert all(copied(*one, STEP) for one in former)
    for host, rank in former:
        directory = host.agent.memory.directory(harness.JOB, rank, own=False)
        await until(lambda directory=directory: not directory.exists(), what="given up")
    for host, rank in new:
        held = host.agent.memory.held(harness.JOB)
        assert max(one.step for one in held if one.rank == rank and not one.own) > STEP
