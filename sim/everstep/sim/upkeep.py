"""What befalls hosts that still answer: maintenance, counted errors, probes, chips that are wrong.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from everstep.core.errors import EverstepError
from everstep.core.time import SECOND_MS
from everstep.service.commands import send_command
from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.remaking import Flaw
from everstep.sim.services import fleet_of
from everstep.sim.world import World
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.common_pb2 import CommandReply

REPLY_S: Final = 5.0
TRIES_MAX: Final = 60
FATAL: Final = ("gpu_uncorrected", "memory_uncorrected", "gpu_row_remap_failed", "gpu_xid_79")
PROBES: Final = ("product_float32", "memory")


async def insist(world: World, command: Any) -> bool:
    """Tell the inventory something until it answers; say whether it agreed."""
    for _ in range(TRIES_MAX):
        try:
            reply = await send_command(
                world.person, "host_inventory", command, CommandReply, timeout_s=REPLY_S
            )
        except EverstepError:
            await asyncio.sleep(1.0)
            continue
        answer = "accepted" if reply.outcome.accepted else f"refused: {reply.outcome.why}"
        world.note("person", f"{type(command).__name__} {command.host_id}: {answer}")
        return bool(reply.outcome.accepted)
    return False


async def maintain(world: World, random: Random) -> None:
    """A person wants a host, perhaps one that a job has just got, and gives it back later."""
    fleet = await fleet_of(world.backing)
    new = sorted({host for job in fleet.jobs.values() if job.held for host in job.replacements})
    host_id = random.choice(new if new and random.random() < 0.5 else sorted(world.hosts))
    wanted_s = random.choice((0, 0, 20, 60))
    now_ms = world.clock.now_ms()
    until_ms = now_ms + wanted_s * SECOND_MS if wanted_s else 0
    await insist(
        world,
        hosts_pb2.MaintainHost(host_id=host_id, reason="firmware", until_ms=until_ms, at_ms=now_ms),
    )
    await asyncio.sleep(random.choice((1.0, 20.0, 60.0)))
    if not wanted_s or random.random() < 0.3:
        at_ms = world.clock.now_ms()
        await insist(world, hosts_pb2.UncordonHost(host_id=host_id, at_ms=at_ms))


async def count_errors(world: World, random: Random) -> None:
    """A host counts errors: a burst that means little, or one that means that it is broken."""
    host_id = random.choice(sorted(world.hosts))
    host = world.hosts[host_id]
    if random.random() < 0.4:
        host.count_error("memory_corrected", by=500)
        return
    host.count_error(random.choice(FATAL))
    await asyncio.sleep(random.choice((0.0, 1.0, 10.0)))
    ranks = sorted(rank for run in host.runs.values() for rank in run.alive)
    if ranks and random.random() < 0.5:
        world.note(host_id, f"rank {ranks[0]} killed by what is broken")
        host.kill_rank(ranks[0])
    await asyncio.sleep(random.choice((5.0, 60.0)))
    world.note(host_id, "repaired")
    host.errors.clear()


async def fail_probes(world: World, random: Random) -> None:
    """A host that is asked computes wrongly, for a while."""
    host = world.hosts[random.choice(sorted(world.hosts))]
    host.wrong = random.choice(PROBES)
    world.note(host.host_id, f"computes wrongly: {host.wrong}")
    await asyncio.sleep(random.choice((5.0, 30.0, 90.0)))
    host.wrong = ""


async def delay_probes(world: World, random: Random) -> None:
    """Probes of a host take long, or never come to an end while it lasts."""
    host = world.hosts[random.choice(sorted(world.hosts))]
    host.probe_delay_s = random.choice((2.0, 15.0, 1e9))
    world.note(host.host_id, f"its probes take {host.probe_delay_s} s more")
    await asyncio.sleep(random.choice((5.0, 30.0, 90.0)))
    host.probe_delay_s = 0.0


async def wrong_work(world: World, random: Random) -> None:
    """A chip begins to compute wrong, once or until it is mended; one at a time."""
    live = sorted(key for key, training in world.trainings.items() if training.stepping)
    if not live or world.flaws.hosts:
        return
    training = world.trainings[random.choice(live)]
    if not training.spec.corruption.recompute_every_steps:
        return
    host_id = random.choice(sorted(training.runs))
    first = training.step + random.randint(1, 5)
    world.note(host_id, f"computes wrong from step {first} on")
    world.flaws.hosts[host_id] = Flaw(
        first=first,
        last=first + random.choice((0, 1_000_000, 1_000_000)),
        itself=random.random() < 0.3,
        half=random.random() < 0.3,
        repeats=random.random() < 0.4,
    )
    await asyncio.sleep(random.choice((20.0, 60.0)))
    world.note(host_id, "mended")
    world.flaws.hosts.clear()


KINDS: Final[dict[str, Strike]] = {
    "maintain": maintain,
    "count_errors": count_errors,
    "fail_probes": fail_probes,
    "delay_probes": delay_probes,
    "wrong_work": wrong_work,
}


def draw_upkeep(random: Random, *, until_s: float) -> list[Fault]:
    """Draw what befalls the hosts of this run, and when: in a third of the runs nothing."""
    return draw_kinds(KINDS, random, nothing_share=0.3, count_max=5, until_s=until_s)
