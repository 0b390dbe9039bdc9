"""A host whose memory directory is full: what it refuses, and how its peers and jobs go on."""

from __future__ import annotations

import logging
import re

import pytest
from tests.integration.agent import harness
from tests.integration.agent.harness import (
    hosts_on,
    new_plane,
    placed,
    spec_json,
    start_all,
    start_command,
)
from tests.small_memory import kinds, small_memory
from tests.waiting import until

from everstep.agent import store
from everstep.wire.v1.common_pb2 import CommandReply

SIZE = 8 << 20
SIDES = {"rendezvous_address": "127.0.0.1", "rendezvous_port": 1, "restore_step": -1}


@pytest.fixture(params=kinds())
async def two(request, tmp_path, monkeypatch):
    """Host a, and host b with little memory of its own; no headroom is kept on either."""
    monkeypatch.setattr(store, "HEADROOM_BYTES", 0)
    with small_memory(request.param, tmp_path / "memory", SIZE, monkeypatch) as small:
        async with hosts_on(tmp_path, "a", "b") as [a, b], new_plane() as plane:
            b.settings = b.settings.model_copy(update={"memory_dir": small.path / "b"})
            async with a.up(plane), b.up(plane):
                yield plane, a, b, small


async def test_peer_without_room_costs_the_copies_and_nothing_else(two, caplog):
    """It says where, how much and how much there is; with room again, there are copies again."""
    plane, a, b, small = two
    small.fill()
    start = start_command(placed([a, b], 1), "a", generation=1, spec_json=spec_json(), **SIDES)
    with caplog.at_level(logging.ERROR):
        assert (await plane.ask("a", start, CommandReply)).outcome.accepted
        rank = await until(lambda: (run := a.agent.runs.get(harness.JOB)) and run.ranks[0])
        await until(lambda: rank.control.replication_off, what="switched off")
    assert re.search(
        r"rank 0 goes on without a copy elsewhere: peer 127\.0\.0\.1:\d+: "
        rf"(no room for [a-z0-9-]+ in )?{small.path / 'b'}[a-z0-9/-]*(:| has 0 bytes free)",
        caplog.text,
    ), caplog.text
    told = await until(lambda: newest_word(plane, "a"), what="told")
    assert (list(told.ranks), told.peer_host_id) == ([0], "b")
    assert "bytes free" in told.why or "bytes, " in told.why or "space" in told.why, told.why
    before = plane.newest_step(1)
    await plane.step_reached(1, before + 20)
    await until(lambda: a.agent.memory.newest(harness.JOB, 0).step > before)
    small.empty()
    await until(lambda: rank.control.replicated_step > before, what="copied again")
    assert not rank.control.replication_off
    await until(lambda: newest_word(plane, "a") is None, what="no more of it")
    assert [one.own for one in b.agent.memory.held(harness.JOB)][:1] == [False]


def newest_word(plane, host_id):
    """What a host's newest heartbeat says of ranks without copies."""
    beat = next(one for one in reversed(plane.heartbeats) if one.host_id == host_id)
    return next((job.uncopied for job in beat.jobs if job.HasField("uncopied")), None)


async def test_start_on_a_full_host_is_refused_with_the_numbers(two):
    """Before anything runs; the host goes on answering, and takes the job once there is room."""
    plane, _, b, small = two
    alone = placed([b], 1, replicate=False)
    small.fill()
    [answer] = await start_all(plane, alone, 1, spec_json())
    assert answer.outcome.why == "no_space"
    where = small.path / "b" / harness.JOB
    said = f"no room for generation in {where}: it needs 1 more bytes, 0 are free "
    assert answer.outcome.detail.startswith(said)
    small.empty()
    [answer] = await start_all(plane, alone, 1, spec_json())
    assert answer.outcome.accepted
    await plane.step_reached(1, 2)
