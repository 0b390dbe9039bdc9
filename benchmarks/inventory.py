"""Times the inventory at 2,048 hosts of 8 chips: joins, placement, replacement, heartbeats.

``decide_*`` is the pure decision with its fold, ``encode_*`` and ``decode_*`` the placement as it
is stored, ``write_*`` and ``read_*`` as it is answered and understood, all of them processor time;
``service_*`` is the whole way over NATS into PostgreSQL and back.
Run: ``make bench NAME=inventory`` or ``python -m benchmarks.inventory``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from typing import Any, Final

import httpx
from benchmarks.support.figures import machine, save, summary
from benchmarks.support.service import Running, running_service

from everstep.core.decision import Accepted
from everstep.core.placement import Layout, Placement
from everstep.core.system import SystemClock
from everstep.host_inventory.codec import EVENTS
from everstep.host_inventory.commands import JoinHost, PlaceJob
from everstep.host_inventory.decider import decide
from everstep.host_inventory.events import JobPlaced
from everstep.host_inventory.state import Fleet, evolve
from everstep.service.commands import host_subject, send_command
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.agents_pb2 import Heartbeat
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.common_pb2 import Placement as WirePlacement

HOSTS: Final = 2_048
SPARES: Final = 40  # 2 %
HOSTS_A_POD: Final = 32
LAYOUT: Final = Layout(pp=16, dp_shard=128, tp=8)
REPEATS: Final = 10
REPLY_S: Final = 120.0
CLOCK: Final = SystemClock()


def join(i: int) -> JoinHost:
    """Return the i-th host's join."""
    return JoinHost(
        host_id=f"h{i:05d}",
        pod=f"pod-{i // HOSTS_A_POD:03d}",
        power=f"power-{i // (2 * HOSTS_A_POD):03d}",
        chips=8,
        address=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}",
        peer_port=7000,
        agent_epoch="e1",
        at_ms=CLOCK.now_ms(),
    )


def place(generation: int, lost: tuple[str, ...] = ()) -> PlaceJob:
    """Ask for the mission's layout."""
    return PlaceJob(
        job_id="bench",
        generation=generation,
        layout=LAYOUT,
        lost_hosts=lost,
        reason="host_lost",
        incident_id="i1",
        at_ms=CLOCK.now_ms(),
    )


def decisions() -> dict[str, Any]:
    """Time the pure functions."""
    fleet = Fleet()
    started_s = time.perf_counter()
    for i in range(HOSTS + SPARES):
        fleet = apply(join(i), fleet)
    joins_s = time.perf_counter() - started_s
    placed = apply(place(1), fleet)
    lost = place(2, ("h00007", "h01000"))
    event = placed_event(lost, placed)
    stored = EVENTS.encode(event)
    message = to_wire(event.placement, WirePlacement())
    return {
        "decide_joins_s": round(joins_s, 3),
        "decide_place_ms": timed(lambda: apply(place(1), fleet)),
        "decide_replace_ms": timed(lambda: apply(lost, placed)),
        "encode_placement_ms": timed(lambda: EVENTS.encode(event)),
        "decode_placement_ms": timed(lambda: EVENTS.decode(*stored)),
        "write_placement_ms": timed(lambda: to_wire(event.placement, WirePlacement())),
        "read_placement_ms": timed(lambda: from_wire(message, Placement)),
    }


def placed_event(command: PlaceJob, fleet: Fleet) -> JobPlaced:
    """Return what is stored of a placement."""
    decision = decide(command, fleet)
    assert isinstance(decision, Accepted), decision
    event = decision.events[-1]
    assert isinstance(event, JobPlaced), event
    return event


def apply(command: JoinHost | PlaceJob, fleet: Fleet) -> Fleet:
    """Decide and fold."""
    decision = decide(command, fleet)
    assert isinstance(decision, Accepted), decision
    return reduce(evolve, decision.events, fleet)


def timed(work: Callable[[], object]) -> dict[str, Any] | None:
    """Return a summary of the processor time that ``work`` takes [ms]."""
    times = []
    for _ in range(REPEATS):
        started_s = time.process_time()
        work()
        times.append((time.process_time() - started_s) * 1000)
    return summary(times)


async def over_the_bus(running: Running) -> dict[str, Any]:
    """Time the service as agents and controller see it."""
    bus = running.bus

    async def joined(i: int) -> None:
        facts = {k: v for k, v in asdict(join(i)).items() if k != "heard_ms"}
        command = to_wire(facts, hosts_pb2.JoinHost())
        reply = await send_command(bus, "host_inventory", command, CommandReply, timeout_s=REPLY_S)
        assert reply.outcome.accepted, reply.outcome

    async def placed_ms(generation: int, *lost: str) -> float:
        command = to_wire(place(generation, lost), hosts_pb2.PlaceJob())
        started_s = time.perf_counter()
        reply = await send_command(
            bus, "host_inventory", command, hosts_pb2.PlaceJobReply, timeout_s=REPLY_S
        )
        assert len(reply.placement.hosts) == HOSTS, reply.outcome
        return (time.perf_counter() - started_s) * 1000

    started_s = time.perf_counter()
    await asyncio.gather(*(joined(i) for i in range(HOSTS + SPARES)))
    joins_s = time.perf_counter() - started_s
    first_ms = await placed_ms(1)
    replaced_ms = [await placed_ms(2 + i, f"h{i * 100:05d}") for i in range(REPEATS)]
    return {
        "service_joins_s": round(joins_s, 2),
        "service_place_ms": round(first_ms, 1),
        "service_replace_ms": summary(replaced_ms, 1),
        "heartbeats_seen": await heartbeats(running),
    }


async def heartbeats(running: Running) -> dict[str, int]:
    """Send one heartbeat of every host and count those that reach the table."""
    sent_ms = CLOCK.now_ms()
    for i in range(HOSTS):
        beat = Heartbeat(host_id=f"h{i:05d}", agent_epoch="e1", sequence=1, at_ms=sent_ms)
        await running.bus.publish(host_subject(beat.host_id, "heartbeat"), beat.SerializeToString())
    async with httpx.AsyncClient(base_url=running.url, timeout=REPLY_S) as client:
        seen = 0
        while seen < HOSTS and CLOCK.now_ms() - sent_ms < 30_000:
            found = (await client.get("/v1/hosts")).json()["hosts"]
            seen = sum(1 for host in found if host["last_heartbeat_ms"])
    return {"sent": HOSTS, "seen": seen, "after_ms": CLOCK.now_ms() - sent_ms}


async def main() -> None:
    """Measure and save."""
    figures = decisions()
    async with running_service("host_inventory") as running:
        figures |= await over_the_bus(running)
    figures |= {"hosts": HOSTS, "ranks": LAYOUT.world_size, "machine": machine()}
    save("inventory", figures, keep=True)


if __name__ == "__main__":
    asyncio.run(main())
