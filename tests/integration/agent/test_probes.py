"""Probes of a real host: real processes forked from a fork server that has torch imported."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.agent.harness import JOB, hosts_on, new_plane, placed, spec_json, start_all
from tests.waiting import until

from everstep.core.probes import Depth, ProbeReport, Verdict
from everstep.service.commands import host_subject, request
from everstep.wire.codec import from_wire
from everstep.wire.v1.probes_pb2 import ExamineHost, ExamineHostReply, PartnerHost

pytestmark = pytest.mark.torch
EXAMINE_S = 120.0
PRELOAD = "numpy,torch,everstep.train.probes.run"
SOUND = ("--preload", PRELOAD)
WRONG = ("--preload", f"{PRELOAD},tests.integration.agent.wrong_unit:break_a_unit")


@pytest.fixture
async def plane():
    """A control plane."""
    async with new_plane() as made:
        yield made


async def examine(plane, host_id, depth=Depth.QUICK, **more) -> ExamineHostReply:
    """Ask a host to run its probes."""
    command = ExamineHost(examination_id="x1", depth=depth, **more)
    subject = host_subject(host_id, "cmd.examine")
    return await request(plane.bus, subject, command, ExamineHostReply, timeout_s=EXAMINE_S)


def verdicts(reply: ExamineHostReply) -> dict[str, Verdict]:
    """Each probe's, by name."""
    assert reply.outcome.accepted, reply.outcome
    report = from_wire(reply.report, ProbeReport)
    return {one.name: one.verdict for one in report.probes}


async def test_sound_host_passes_every_probe(tmp_path, plane):
    """Products, memory, its own port and a partner's; each with its numbers."""
    async with (
        hosts_on(tmp_path, "h1", "h2") as [one, other],
        one.up(plane, fork_arguments=SOUND),
        other.up(plane) as agent,
    ):
        port = agent.facts.peer_port
        partner = PartnerHost(host_id="h2", address="127.0.0.1", port=port)
        reply = await examine(plane, "h1", partner=partner)
    names = ["product_integers", "loopback", "pair", "product_float32", "product_bfloat16"]
    names += ["product_float64", "product_seeded", "memory"]
    assert verdicts(reply) == dict.fromkeys(names, Verdict.PASSED)
    figures = {(p.name, f.name): f.value for p in reply.report.probes for f in p.figures}
    assert figures["pair", "both_ways_bytes_per_s"] > 0
    assert figures["memory", "tested_bytes"] >= 4 << 20


async def test_unit_that_is_wrong_is_named(tmp_path, plane):
    """One element of a product in float32: that probe fails and says where; no other does."""
    async with hosts_on(tmp_path, "h1") as [host], host.up(plane, fork_arguments=WRONG):
        reply = await examine(plane, "h1")
    found = [one for one in reply.report.probes if one.verdict == Verdict.FAILED]
    assert {one.name for one in found} == {"product_float32"}
    assert all(one.where.startswith("core ") for one in found)
    assert "1 of 65536 elements wrong in repeat 1; at 3,5 expected" in found[0].detail


async def test_who_asks_while_probes_run_or_again_is_told_the_same(tmp_path, plane):
    """Two inventories, or one that was started anew, or an answer that was lost."""
    async with hosts_on(tmp_path, "h1") as [host], host.up(plane, fork_arguments=SOUND):
        burn_in = examine(plane, "h1", Depth.BURN_IN, burn_in_s=1)
        first, second = await asyncio.gather(burn_in, examine(plane, "h1"))
        again = await examine(plane, "h1")
    assert first == second == again
    assert first.report.depth == Depth.BURN_IN


async def test_probes_give_way_to_ranks_at_once(tmp_path, plane):
    """A start ends a burn-in of an hour; where ranks run nothing is probed."""
    async with hosts_on(tmp_path, "h1") as [host], host.up(plane) as agent:
        asked = asyncio.create_task(examine(plane, "h1", Depth.BURN_IN, burn_in_s=3_600))
        log = host.settings.run_dir / "logs" / "probes.log"
        await until(log.exists, what="the probes are forked")
        spec = spec_json()
        [started] = await start_all(plane, placed([host], 1, replicate=False), 1, spec)
        assert started.outcome.accepted, started.outcome
        assert (await asked).outcome.detail == "ranks came"
        await plane.step_reached(1, 3)
        again = await examine(plane, "h1")
        assert again.outcome.why == "busy"
        assert [rank.rank for rank in agent.runs.get(JOB).alive] == [0]


async def test_probes_that_die_tell_nothing_of_the_host(tmp_path, plane):
    """The agent says that there is no report, and the next examination is a new one."""
    broken = ("--preload", f"{PRELOAD},tests.integration.agent.wrong_unit:break_the_probes")
    async with hosts_on(tmp_path, "h1") as [host], host.up(plane, fork_arguments=broken):
        reply = await examine(plane, "h1")
        assert (reply.outcome.why, reply.outcome.detail) == (
            "not_examined",
            "the probes ended with code 1",
        )
