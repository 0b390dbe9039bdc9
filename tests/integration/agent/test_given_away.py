"""What becomes of a job's memory on a host that another job is placed on."""

from __future__ import annotations

import json

from tests.integration.agent import harness
from tests.integration.agent.harness import placed, spec_json, start_all, start_command
from tests.integration.agent.test_restore import STEP, run_and_fence, slot_of, state_in
from tests.waiting import until

from everstep.wire.v1.common_pb2 import CommandReply

NEXT = "job-2"


async def start_next(plane, host):
    """Start another job's only rank on a host."""
    command = start_command(
        placed([host], 1),
        host.host_id,
        job_id=NEXT,
        generation=1,
        spec_json=spec_json(),
        rendezvous_address="127.0.0.1",
        rendezvous_port=1,
        restore_step=-1,
    )
    reply = await plane.ask(host.host_id, command, CommandReply)
    assert reply.outcome.accepted, reply.outcome


async def test_host_that_is_given_away_drops_what_the_job_left(two):
    """The job went on elsewhere: nobody tells this host to forget it, and the next needs room."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    await start_next(plane, hosts[0])
    assert hosts[0].agent.memory.jobs() == [NEXT]
    assert hosts[0].agent.runs.get(harness.JOB) is None
    assert hosts[1].agent.memory.jobs() == [harness.JOB]


async def test_host_that_was_given_away_serves_the_job_again_later(two):
    """It forgets what lay there, and refuses no generation that has not been here."""
    plane, hosts = two
    await run_and_fence(plane, hosts)
    await start_next(plane, hosts[0])
    [reply] = await start_all(plane, placed(hosts[:1], 1), 2, spec_json())
    assert reply.outcome.accepted
    await plane.step_reached(2, 1)
    assert hosts[0].agent.memory.jobs() == [harness.JOB]


async def test_copies_for_a_job_that_never_ran_here_are_kept(two):
    """Its ranks run elsewhere, and this may be the only copy that they have."""
    plane, hosts = two
    command = start_command(
        placed(hosts, 1),
        "h1",
        generation=1,
        spec_json=spec_json(fail="hold", fail_at=STEP + 1, patient=True),
        rendezvous_address="127.0.0.1",
        rendezvous_port=1,
        restore_step=-1,
    )
    assert (await plane.ask("h1", command, CommandReply)).outcome.accepted
    rank = await until(lambda: (run := hosts[0].agent.runs.get(harness.JOB)) and run.ranks[0])
    await until(lambda: rank.control.replicated_step >= STEP, what="replicated")
    await start_next(plane, hosts[1])
    assert hosts[1].agent.memory.jobs() == [harness.JOB, NEXT]
    assert state_in(slot_of(hosts[1], 0, STEP, is_own=False))


async def test_what_an_elastic_job_left_is_kept(two):
    """It may go on from there under another layout: it asks hosts that it has left."""
    plane, hosts = two
    spec = json.loads(spec_json())
    spec["recovery"] = {"no_spare": "elastic"}
    await start_all(plane, placed(hosts[:1], 1), 1, json.dumps(spec))
    await plane.step_reached(1, 2)
    await plane.stop("h1", 2)
    held = hosts[0].agent.memory.held(harness.JOB)
    assert held
    await start_next(plane, hosts[0])
    assert hosts[0].agent.memory.held(harness.JOB) == held
