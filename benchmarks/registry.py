"""Times the registry at 16,384 ranks on 2,048 hosts: restore plans, shard reports.

``decide_*``, ``read_*``, ``write_*``, ``encode_*``, ``decode_*`` (the stored plan) and ``start_*``
(the controller's part: a start command for every host) are processor time of the pure parts,
``service_*`` wall time over NATS into PostgreSQL and back. Every host holds two steps of its own 8
ranks and of a peer's. Run: ``make bench NAME=registry`` or ``python -m benchmarks.registry``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from benchmarks.support.figures import machine, save, summary
from benchmarks.support.service import Running, running_service

from everstep.checkpoint_registry.codec import HISTORY_EVENTS, plan_restore, plan_restore_reply
from everstep.checkpoint_registry.commands import CompleteFacts
from everstep.checkpoint_registry.decider import decide_history
from everstep.checkpoint_registry.events import Shard
from everstep.checkpoint_registry.state import History, evolve_history
from everstep.controller.starting import source_counts, sources_by_host, start_commands
from everstep.controller.state import Job
from everstep.core.decision import Accepted
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.service.commands import send_command
from everstep.service.handler import Handled
from everstep.wire.v1 import checkpoints_pb2 as wire
from everstep.wire.v1.common_pb2 import CommandReply

HOSTS: Final = 2_048
RANKS_A_HOST: Final = 8
RANKS: Final = HOSTS * RANKS_A_HOST
STEPS: Final = (99, 100)
REPEATS: Final = 10
REPLY_S: Final = 120.0


def request(generation: int, lost: Sequence[int]) -> wire.PlanRestore:
    """Ask for a plan with what the hosts hold that are not lost."""
    message = wire.PlanRestore(
        job_id="bench", generation=generation, world_size=RANKS, from_step=-1, at_ms=1
    )
    for host in range(HOSTS):
        if host in lost:
            continue
        holdings = message.holdings.add(
            host_id=f"h{host:05d}", address=f"10.0.{host >> 8}.{host & 255}", peer_port=7000
        )
        for owner in (host, host ^ 1):  # pairs
            ranks = range(owner * RANKS_A_HOST, (owner + 1) * RANKS_A_HOST)
            for step in STEPS:
                holdings.held.add(step=step, own=owner == host, generation=1, ranks=ranks)
    return message


def shard(rank: int, step: int) -> Shard:
    """Return a shard of a checkpoint."""
    uri = f"jobs/bench/step-{step:08d}/gen-1/rank-{rank:05d}.shard"
    return Shard(rank=rank, uri=uri, bytes=1, checksum="0" * 32)


def decisions() -> dict[str, Any]:
    """Time the pure functions and the conversions around them."""
    checkpoint = CompleteFacts(
        step=80, generation=1, shards=tuple(shard(rank, 80) for rank in range(RANKS))
    )
    message = request(2, lost=(5,))
    command = plan_restore(message, (checkpoint,))
    decision = decide_history(command, History())
    assert isinstance(decision, Accepted), decision
    state = reduce(evolve_history, decision.events, History())
    done = Handled(state=state, version=2, events=decision.events, rejected=None)
    pair_lost = plan_restore(request(2, lost=(4, 5)), (checkpoint,))
    fresh = replace(command, holdings=())
    stored = HISTORY_EVENTS.encode(decision.events[0])
    return {
        "decide_ms": timed(lambda: decide_history(command, History())),
        "decide_pair_lost_ms": timed(lambda: decide_history(pair_lost, History())),
        "decide_from_objects_ms": timed(lambda: decide_history(fresh, History())),
        "evolve_ms": timed(lambda: reduce(evolve_history, decision.events, History())),
        "encode_plan_ms": timed(lambda: HISTORY_EVENTS.encode(decision.events[0])),
        "decode_plan_ms": timed(lambda: HISTORY_EVENTS.decode(*stored)),
        "read_request_ms": timed(lambda: plan_restore(message, (checkpoint,))),
        "write_reply_ms": timed(lambda: plan_restore_reply(done)),
        "request_bytes": message.ByteSize(),
        "reply_bytes": plan_restore_reply(done).ByteSize(),
    }


def starts() -> dict[str, Any]:
    """Time what the controller makes of a plan: one start command for every host."""
    message = plan_restore(request(2, lost=()), ())
    decision = decide_history(message, History())
    assert isinstance(decision, Accepted), decision
    state = reduce(evolve_history, decision.events, History())
    done = Handled(state=state, version=2, events=decision.events, rejected=None)
    sources = plan_restore_reply(done).sources
    hosts = tuple(
        HostPlacement(
            host_id=f"h{host:05d}",
            ranks=tuple(range(host * RANKS_A_HOST, (host + 1) * RANKS_A_HOST)),
            address=f"10.0.{host >> 8}.{host & 255}",
            peer_port=7000,
            replica_host_id=f"h{host ^ 1:05d}",
        )
        for host in range(HOSTS)
    )
    placement = Placement(layout=Layout(dp_shard=RANKS), hosts=hosts)
    spec = {"name": "bench", "entry": "a:b", "layout": {"dp_shard": RANKS}, "steps": STEPS[-1]}
    job = Job(
        job_id="bench",
        spec_json=json.dumps(spec),
        generation=2,
        placement=placement,
        restore_step=STEPS[-1],
    )

    def commands() -> list[bytes]:
        parts = sources_by_host(placement, sources)
        return [one.SerializeToString() for one in start_commands(job, parts).values()]

    return {
        "start_count_ms": timed(lambda: source_counts(placement, sources)),
        "start_commands_ms": timed(commands),
        "start_bytes_in_all": sum(len(command) for command in commands()),
    }


def timed(work: Callable[[], object]) -> dict[str, Any] | None:
    """Return a summary of the processor time that ``work`` takes [ms]."""
    times = []
    for _ in range(REPEATS):
        started_s = time.process_time()
        work()
        times.append((time.process_time() - started_s) * 1000)
    return summary(times, 1)


async def over_the_bus(running: Running) -> dict[str, Any]:
    """Time the service as the controller and the agents see it."""
    times = []
    for i in range(REPEATS):
        message = request(2 + i, lost=(i,))
        started_s = time.perf_counter()
        reply = await send_command(
            running.bus,
            "checkpoint_registry",
            message,
            wire.PlanRestoreReply,
            timeout_s=REPLY_S,
        )
        times.append((time.perf_counter() - started_s) * 1000)
        told = sum(len(holder.own) for holder in reply.sources.holders)
        assert (reply.step, told) == (STEPS[-1], RANKS - RANKS_A_HOST), reply.outcome
    return {"service_plan_ms": summary(times, 1), "service_reports_s": await reports(running)}


async def reports(running: Running) -> float:
    """Report one checkpoint's shards from every host at once."""

    async def told(host: int) -> None:
        message = wire.ReportShards(
            job_id="reports",
            step=100,
            generation=1,
            host_id=f"h{host:05d}",
            world_size=RANKS + 1,  # one rank never reports: nothing is read back meanwhile
            data_state="{}",
            at_ms=1,
        )
        for rank in range(host * RANKS_A_HOST, (host + 1) * RANKS_A_HOST):
            uri = f"jobs/reports/step-00000100/gen-1/rank-{rank:05d}.shard"
            message.shards.add(rank=rank, uri=uri, bytes=1, checksum="0" * 32)
        reply = await send_command(
            running.bus, "checkpoint_registry", message, CommandReply, timeout_s=REPLY_S
        )
        assert reply.outcome.accepted, reply.outcome

    started_s = time.perf_counter()
    await asyncio.gather(*(told(host) for host in range(HOSTS)))
    return round(time.perf_counter() - started_s, 2)


async def main() -> None:
    """Measure and save."""
    figures = decisions() | starts()
    async with running_service("checkpoint_registry") as running:
        figures |= await over_the_bus(running)
    figures |= {"hosts": HOSTS, "ranks": RANKS, "machine": machine()}
    save("registry", figures, keep=True)


if __name__ == "__main__":
    asyncio.run(main())
