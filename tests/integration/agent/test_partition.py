"""A host that was cut from its peers and replaced: what it still writes counts nowhere."""

from __future__ import annotations

from tests.integration.agent.harness import (
    JOB,
    Plane,
    hosts_on,
    new_plane,
    placed,
    spec_json,
    start_all,
)
from tests.integration.agent.relay import relay_to
from tests.waiting import until

from everstep.agent.host import HostAgent
from everstep.agent.store import Held
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import CheckLinks, CheckLinksReply, LinkPeer, SaveRanks
from everstep.wire.v1.common_pb2 import CommandReply


async def reached(plane: Plane, host_id: str, port: int) -> bool:
    """Ask a host whether it reaches another one."""
    command = CheckLinks(peers=[LinkPeer(host_id="other", address="127.0.0.1", port=port)])
    subject = host_subject(host_id, "cmd.links")
    reply = await request(plane.bus, subject, command, CheckLinksReply, timeout_s=60.0)
    [link] = reply.links
    return link.reached


async def newest(agent: HostAgent) -> Held:
    """The newest snapshot of rank 0: both slots may look half written while one overtakes."""
    held: Held = await until(lambda: agent.memory.newest(JOB, 0), what="snapshot")
    return held


async def test_host_that_was_replaced_writes_nothing_that_counts(tmp_path, caplog):
    """Its copies are refused, its objects have its generation's keys, and its ranks are ended."""
    async with (
        hosts_on(tmp_path, "h1", "h2", "h3") as [cut, holder, newcomer],
        new_plane() as plane,
        cut.up(plane) as old,
        holder.up(plane) as agent,
        newcomer.up(plane),
        relay_to(agent.facts.peer_port) as relay,
    ):
        first = placed([cut, holder], 1)
        first.hosts[1].peer_port = relay.port
        await start_all(plane, first, 1, spec_json(step_ms=5))
        rank = old.runs.get(JOB).ranks[0]
        await until(lambda: rank.control.replicated_step >= 3, what="copied")
        await until(lambda: reached(plane, "h1", relay.port), what="reached")

        relay.cut()
        assert not await reached(plane, "h1", relay.port)
        copied = agent.memory.find(JOB, 0, rank.control.replicated_step, own=False)
        assert copied is not None
        await plane.stop("h2", 2)
        await plane.stop("h3", 2)
        await start_all(plane, placed([holder, newcomer], 1), 2, spec_json(step_ms=5))
        await plane.step_reached(2, 3)
        held = await newest(agent)

        relay.mend()
        await until(lambda: "of job job-1 (generation 1): " in caplog.text, what="refused")
        assert "job job-1 is fenced at generation 2 here" in caplog.text
        assert [held.preamble.generation, (await newest(agent)).preamble.generation] == [2, 2]
        replicas = [one for one in agent.memory.held(JOB) if not one.own and one.rank == 0]
        assert all(one.step <= copied.step for one in replicas)

        save = SaveRanks(job_id=JOB, generation=1)
        await plane.ask("h1", save, CommandReply)
        report = await until(
            lambda: next((one for one in plane.shards if one.host_id == "h1"), None)
        )
        assert report.generation == 1  # the registry refuses it: unit/checkpoint_registry
        assert all("/gen-1/" in shard.uri for shard in report.shards)

        await plane.stop("h1", 2)
        assert list((await plane.probe("h1")).jobs) == []
