"""A job that is stopped: what is waited for, and what is not."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import pytest
from tests.integration.agent import harness
from tests.integration.agent.gated import GatedObjects
from tests.integration.agent.harness import hosts_on, new_plane, placed, spec_json, start_all
from tests.waiting import until

from everstep.agent import supervisor
from everstep.agent.exits import Intent
from everstep.wire.v1.agents_pb2 import KILLED, RANK_EXITED, STOPPED

EVERY = {"every": 5, "stores_last": True}


@pytest.fixture
def hurried(monkeypatch, caplog):
    """Agents that give ranks a second to stop, and say in the log what they wait for."""
    monkeypatch.setattr(supervisor, "STOP_S_MAX", 1.0)
    monkeypatch.setattr(supervisor, "STORE_LOOK_S", 0.1)
    monkeypatch.setattr(supervisor, "LEAVE_S_MAX", 1.0)
    caplog.set_level(logging.INFO)
    return caplog


async def test_last_step_of_a_stopped_job_waits_for_an_earlier_upload(tmp_path, hurried):
    """Nothing but what is stored of it outlives the job; however long that takes."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, spec_json(**EVERY))
            await plane.objects.asked.wait()
            stop = asyncio.create_task(plane.stop("h1", 2, graceful=True, store=True))
            await until(lambda: "the last checkpoint waits until" in hurried.text)
            assert not stop.done()
            plane.objects.gate.set()
            assert (await stop).outcome.accepted
            [end] = await until(lambda: plane.reported(RANK_EXITED))
            assert end.exit_class == STOPPED
            await until(lambda: end.step in [one.step for one in plane.shards])


@pytest.mark.parametrize(
    ("spec", "store"),
    [(EVERY, False), ({"fail_at": 8, "fail": "hold", **EVERY}, True)],
    ids=["goes on from memory", "hangs in a step"],
)
async def test_nobody_else_is_waited_for_after_a_minute(tmp_path, hurried, spec, store):
    """Who is moved has its last step in memory, and a rank that hangs makes no last step."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        plane.objects = GatedObjects()
        async with host.up(plane):
            await start_all(plane, placed([host], 1), 1, spec_json(**spec))
            await plane.objects.asked.wait()
            if store:
                await plane.step_reached(1, 7)
            rank = host.agent.runs.get(harness.JOB).ranks[0]
            assert (await plane.stop("h1", 2, graceful=True, store=store)).outcome.accepted
            assert not rank.alive
            assert "did not stop in" in hurried.text
            assert KILLED not in {one.exit_class for one in plane.reported(RANK_EXITED)}


async def test_rank_that_goes_in_a_step_is_not_waited_for_by_its_neighbours(tmp_path, caplog):
    """Nobody makes a last step without it: who asks is told so, also by the agent's successor."""
    caplog.set_level(logging.INFO)
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        hold = spec_json(fail="hold", fail_at=4)
        async with host.up(plane):
            await start_all(plane, placed([host], 2), 1, hold)
            await plane.step_reached(1, 3)
            run = host.agent.runs.get(harness.JOB)
            first, second = (run.ranks[rank] for rank in run.start.ranks)
            stop = asyncio.create_task(plane.stop("h1", 2, graceful=True))
            await until(lambda: second.intent is Intent.STOP)
            os.kill(first.pid, signal.SIGKILL)
            told = await stop
            assert told.outcome.accepted
            assert told.broken
            assert not second.alive
            assert "did not stop in" not in caplog.text
        async with host.up(plane):
            assert (await plane.stop("h1", 2, graceful=True)).broken


@pytest.mark.parametrize("known", [True, False], ids=["left", "never here"])
async def test_host_says_whether_its_ranks_have_taken_their_part(tmp_path, known):
    """A host that is back from a reset knows of none, and answers at once."""
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane, host.up(plane):
        if known:
            await start_all(plane, placed([host], 1), 1, spec_json())
            await plane.step_reached(1, 3)
        assert (await plane.stop("h1", 2, graceful=True)).broken is not known
